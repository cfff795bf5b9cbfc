"""Hears by loudness."""
