"""Protobuf schemas: compiled by protoc, printed back as text, compared by the rules that Confluent's registry publishes."""
