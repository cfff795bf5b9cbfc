"""Calls the first tool that it is given."""
