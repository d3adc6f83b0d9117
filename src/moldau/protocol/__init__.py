"""Bytes to values and back, without I/O: messages of every API, codec, framing, record batches, fast paths for Produce and Fetch.

Nothing is imported here: a message's module is loaded by the first request that needs it.
"""
