"""What the broker does for each API: one module per family, loaded at the family's first request.

A module ends with ``HANDLERS``, from API key to ``handler(services, message, request, reply)``, see `moldau.broker.api.catalog`. `services`
has what the module's ``Services`` says, and in a running broker is the broker. `reply` takes the response message, once, now or later.
Produce and Fetch have ways of their own and are called by the connection.
"""
