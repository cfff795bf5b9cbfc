"""Counts words in sound."""
