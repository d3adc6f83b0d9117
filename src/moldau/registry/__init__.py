"""The schema registry: Confluent's REST interface over a compacted topic, its client, and the wire format."""
