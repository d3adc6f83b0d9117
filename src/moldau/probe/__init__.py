"""A canary topic, produced and consumed all the time: availability and latency of each broker, and of mirrors, before users come."""
