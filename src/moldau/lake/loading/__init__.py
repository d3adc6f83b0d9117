"""Loads: what topics hold beyond their tables, into the tables, each event once."""
