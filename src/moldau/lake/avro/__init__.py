"""Avro events to typed Arrow columns: types, schema evolution, the decoders. ``AvroColumns`` in ``columns`` is the door."""
