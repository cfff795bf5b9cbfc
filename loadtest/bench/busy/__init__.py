"""Stages that compute for a set time, to measure what the runtime adds to it."""
