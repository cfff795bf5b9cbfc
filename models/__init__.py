"""Holds the model families, one folder each."""
