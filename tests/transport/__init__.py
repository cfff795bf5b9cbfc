"""Tests the package transport."""
