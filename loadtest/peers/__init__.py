"""Measures other voice servers with our caller, on the same models."""
