"""Hears the same words in whatever is said."""
