"""Topics in Spark: the data source for batches and streams, from offsets to Arrow columns."""
