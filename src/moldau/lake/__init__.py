"""Loading a lake from the log: a PySpark data source, Delta tables that keep their offsets, and the demonstration of both."""
