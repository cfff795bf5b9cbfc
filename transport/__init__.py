"""Carries messages and blocks of data between stages."""
