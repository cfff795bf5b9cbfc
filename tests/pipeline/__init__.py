"""Tests the package pipeline."""
