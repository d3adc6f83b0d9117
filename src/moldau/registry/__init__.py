"""The schema registry (mission F1; P 4): Confluent's REST interface over the compacted topic ``_schemas``, a client, and the wire format."""
