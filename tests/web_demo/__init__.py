"""Tests the page's modules that need no page, with Node's own test runner."""
