"""Holds conversations: the Realtime protocol, its channels, the configuration and the command line."""

from __future__ import annotations

__version__ = "0.1.0"
