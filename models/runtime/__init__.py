"""Blocks that several model families share."""
