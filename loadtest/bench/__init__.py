"""Measures parts of the server by themselves; these reach into its packages."""
