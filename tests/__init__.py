"""Holds the tests, one folder per package."""
