"""Thinks with any server that speaks OpenAI's chat completions."""
