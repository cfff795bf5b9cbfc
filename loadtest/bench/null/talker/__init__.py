"""Speaks a tone."""
