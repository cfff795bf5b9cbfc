"""Writes what it is told, and misbehaves on request."""
