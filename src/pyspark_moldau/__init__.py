"""Makes the format ``moldau`` known to Spark, which imports every module named ``pyspark_*`` and takes its ``DefaultSource``."""

from moldau.lake.reading.source import MoldauDataSource

DefaultSource = MoldauDataSource

__all__ = ["DefaultSource"]
