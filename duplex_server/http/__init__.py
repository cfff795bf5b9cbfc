"""Holds the HTTP routes, one file for each face."""
