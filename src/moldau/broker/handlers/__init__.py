"""What the broker does for each API: one module per family, loaded at the family's first request.

A module ends with ``HANDLERS``, from API key to ``handle(broker, request, context, reply)``. `reply` takes the response message, once, now
or later. Produce and Fetch have ways of their own and are called by the connection.
"""
