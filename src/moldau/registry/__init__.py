"""The schema registry (mission F1; P 4): Confluent's REST interface over a compacted topic, its client, and the wire format."""
