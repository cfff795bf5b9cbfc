"""Writes the same answer to everything."""
