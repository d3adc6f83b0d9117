"""Mirrors between clusters: what is produced in one appears in another, once, in order."""
