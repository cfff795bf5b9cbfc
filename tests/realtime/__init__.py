"""Tests of a realtime session's cores: fed with values, on a virtual clock."""
