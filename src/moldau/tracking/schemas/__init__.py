"""Schemas of events: Avro files and Python types made into one record with the header in front, and checks of events against it."""
