"""The demonstration end to end: three hosts publish real events, a table is loaded with them, the audit proves that all arrived."""
