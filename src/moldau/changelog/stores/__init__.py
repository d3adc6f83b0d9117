"""Stores of replicas: a dict, SQLite, DuckDB, Delta tables. They keep the contract of `moldau.changelog.store.ReplicaStore`."""
