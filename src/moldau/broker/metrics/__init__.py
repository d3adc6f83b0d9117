"""What the broker counts of its requests and topics, and the form of the samples that a monitoring system reads. No I/O."""
