"""Speaks before it is spoken to."""
