"""Tests of the package duplex_server."""
