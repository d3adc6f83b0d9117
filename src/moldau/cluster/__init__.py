"""Metadata of topics, brokers and configurations on the coordination tree, and the snapshot of it that requests read."""
