"""Runs the stages of a voice pipeline: scheduling, workers, supervision."""
