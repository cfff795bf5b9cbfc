"""Speaks tones."""
