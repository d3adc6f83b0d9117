"""Tiers of clusters on one machine: what the file has, what is wrong with it, and the processes that run it."""
