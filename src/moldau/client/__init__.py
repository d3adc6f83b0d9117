"""Connections to a broker: a raw one for tools and for Spark, and a small client of a whole cluster over it."""
