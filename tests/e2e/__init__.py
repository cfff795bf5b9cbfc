"""Tests of the running server, from outside."""
