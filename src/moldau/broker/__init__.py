"""Conducts the rooms below: connections, dispatch, handlers, partitions, waiting fetches.

Nothing here is ``async``, sleeps, or reads a clock, a socket or a file but through a port. All of it runs on one thread, the broker's.
"""
