"""Fetch: ranges of log files, at once or when there is enough."""
