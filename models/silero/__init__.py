"""Detects voice activity with the Silero network."""
