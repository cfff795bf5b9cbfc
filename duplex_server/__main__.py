"""Lets `python -m duplex_server` stand for the `duplex-server` command."""

from __future__ import annotations

import sys

from duplex_server.cli import main

sys.exit(main())
