"""PostgreSQL as the source of a changelog, and as the store of a replica (docs/changelog-postgres.md)."""
