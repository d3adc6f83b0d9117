"""Produce: the handler of a connection, its shortest way, and what a batch must be before it may enter a log."""
