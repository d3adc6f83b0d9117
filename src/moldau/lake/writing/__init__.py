"""The format ``moldau`` as a sink: rows of a batch or of a stream written to topics, on request each once (docs/spark-sink.md)."""
