"""Writes from the event loop, as a remote service would."""
