"""Loads: what topics hold beyond their tables, into the tables, each event once (missions I1, I2, H4)."""
