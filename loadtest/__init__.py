"""Measures a running server from outside, as a client hears it."""
