"""Holds conversations through clients as their makers publish them, against the server as it comes."""
