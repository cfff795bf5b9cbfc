"""Holds the page at `/demo`: plain ES modules and AudioWorklets, served as they are, without a build step."""
