"""What the broker counts of its requests and topics, and the samples that a monitoring system reads of it. No I/O: see docs/metrics.md."""
