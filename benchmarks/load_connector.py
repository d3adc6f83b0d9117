"""The rival of `load_tables.py`, a process of its own: a topic to Parquet files by day with Spark's own Kafka connector and ``from_avro``.

python benchmarks/load_connector.py BOOTSTRAP TOPIC SCHEMA_FILE TARGET
"""

import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from moldau.lake.session import start_spark
from support.spark import connector_jars


def main() -> None:
    """Load all there is. As `moldau load` with its defaults: two cores, 1 GB."""
    bootstrap, topic, schema, target = sys.argv[1:]
    jars = connector_jars()
    assert jars is not None, "Spark's Kafka connector comes from Maven"
    directory = tempfile.mkdtemp(prefix="moldau-bench-")
    spark = start_spark("connector", directory, settings={"spark.jars": ",".join(map(str, sorted(jars.glob("*.jar"))))})
    from pyspark.sql import functions
    from pyspark.sql.avro.functions import from_avro

    records = spark.read.format("kafka").options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": topic}).load()
    bodies = records.selectExpr("substring(value, 6) AS body", "partition AS _partition", "offset AS _offset", "timestamp AS _timestamp")
    events = bodies.select(from_avro("body", Path(schema).read_text()).alias("event"), "_partition", "_offset", "_timestamp")
    rows = events.select("event.*", "_partition", "_offset", "_timestamp")
    rows = rows.withColumn("event_day", functions.to_date("header.time")).withColumn("event_hour", functions.hour("header.time"))
    rows.write.partitionBy("event_day").option("compression", "zstd").parquet(target)
    spark.stop()
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
