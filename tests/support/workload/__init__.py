"""Clients of many kinds at work on one broker while it is killed and stopped; what they did and saw is a `moldau.testing.history`.

`run.run` starts them, breaks the broker, heals it, lets everything drain, and returns the history for the checker.
"""
