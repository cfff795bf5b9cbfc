"""A cascade that does exactly what it is told."""
