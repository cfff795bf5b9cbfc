"""Holds one realtime conversation: pure cores that take inputs and return effects, and the shell that drives them."""
