"""Changelogs: a store publishes its changes to topics, and replicas apply them (docs/changelog.md, docs/decisions/0029-changelog.md)."""
