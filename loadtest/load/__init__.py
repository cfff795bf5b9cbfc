"""Lets many callers talk to a running server at once, and tells what they hear."""
