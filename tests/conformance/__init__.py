"""Holds events against the types of the openai package, and against the rules of real clients."""
