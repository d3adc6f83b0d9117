"""A cluster of broker processes on this host, below one directory: a supervisor starts and stops them, other processes read their state."""
