"""Holds model families made for tests; each loads like any other."""
