"""Detects voice activity with WebRTC's detector and a gate on energy."""
