"""Connections of clients: bytes to frames, responses in the order of their requests."""
