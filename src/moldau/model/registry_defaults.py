"""Bounds of the schema registry that are settings beside a broker and options of ``moldau registry``: their defaults, for both."""

CONNECTIONS_MAX = 1_000
"""Connections at once."""
MEMORY_BYTES_MAX = 24 << 20
"""Of schemas, configurations and modes that are kept."""
