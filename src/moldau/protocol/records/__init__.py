"""Record batches of format v2: header, records, compression, control records. Layout: docs/formats, Kafka's message format page."""
