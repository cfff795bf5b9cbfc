"""Gives codes for a vocoder."""
