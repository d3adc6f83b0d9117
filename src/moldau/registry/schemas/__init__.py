"""The schema languages of the registry: Avro, JSON Schema and Protobuf, each with its own rules of compatibility."""
