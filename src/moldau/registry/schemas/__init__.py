"""The schema languages of the registry: Avro, JSON Schema and Protobuf, each judged by its own rules of compatibility."""
