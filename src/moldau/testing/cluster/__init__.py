"""Brokers of one cluster for tests: processes of this host that can be killed, paused and cut off from each other."""
