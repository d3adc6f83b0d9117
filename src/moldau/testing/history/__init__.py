"""Record what the clients of a run did and saw, and find what a log must never show (the anomalies A1 to A14 of the fault list).

`history.History` is written by the clients as they go; `checker.check` reads it when all is over and returns what is wrong. The definitions
are those of Jepsen's analyses of Kafka-like systems (`jepsen.tests.kafka`), and some that a client library with callbacks makes possible
beside: positions after a rebalance, committed offsets as a register, transactions of a fenced producer, copies made exactly once.
"""
