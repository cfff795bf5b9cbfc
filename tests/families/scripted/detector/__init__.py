"""Hears by energy."""
