"""Writes without end, each step taking the same time."""
