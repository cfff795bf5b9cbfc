"""Holds any Realtime server at a URL against the protocol, from outside."""
