"""Holds the ways a peer is connected; each is one file that fills the `Channel` contract."""
