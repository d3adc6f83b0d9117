"""Stream jobs on Spark over topics and tables (docs/streams.md, docs/decisions/0030-streams.md)."""
