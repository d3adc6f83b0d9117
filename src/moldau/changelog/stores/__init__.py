"""Stores of replicas: a dict, SQLite, DuckDB. They keep the contract of `moldau.changelog.store.ReplicaStore`."""
