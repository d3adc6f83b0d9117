"""Avro schemas: read and compared as Avro 1.12 does it, printed as Confluent's registry stores them."""
