"""The load, as ``moldau load`` does it: rounds of loads of one topic, kept by day, with an hour column; compaction; the watermark."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from moldau.audit.verdicts import Report
from moldau.client.cluster import Cluster
from moldau.client.groups import Groups
from moldau.client.partition_requests import EARLIEST, LATEST
from moldau.demo.host import REJECT_HEADER
from moldau.demo.tiers import LAKE_TIER
from moldau.lake.loading.job import LoadJobs
from moldau.lake.loading.load import load
from moldau.lake.table import set_watermark
from moldau.lake.tables.committing import TableWriter
from moldau.lake.tables.opening import format_of, open_table
from moldau.lake.tables.rewriting import compact_table
from moldau.model.identity import TopicPartition

NAME = "demo"


class DemoLoads:
    """The load job of one topic. With `bad_lines` records that a host has marked as bad become dead letters."""

    def __init__(self, spark: Any, broker: Any, directory: Path, topic: str, *, bad_lines: bool, cores: int) -> None:
        jobs = LoadJobs(
            NAME,
            broker.bootstrap,
            str(directory),
            (topic,),
            registry=broker.registry,
            partition="day",
            tier=LAKE_TIER,
            group_id="moldau-demo",
            writers=cores,  # by itself a load of so few events has one task; these are of 98,890 windows and 366 days
            settings={topic: {"reject_header": REJECT_HEADER}} if bad_lines else {},
        )
        self.job = jobs.job(topic)
        self.rows = 0
        """Rows that came into the table."""
        self._spark = spark
        self._writer = TableWriter(NAME)

    def round(self) -> None:
        """Load what there is now. The errors are those of `moldau.lake.loading.load.load`."""
        self.rows += load(self._spark, self.job, writer=self._writer).rows

    def compact(self) -> None:
        """One file for each day. TableError, FileError."""
        compact_table(self.job.table)

    def set_watermark(self, audit: Report) -> None:
        """Up to when the table is complete, by the audit, into the table's properties."""
        time_ms = audit.watermarks.get((self.job.topic, LAKE_TIER))
        tables = format_of(self.job.table)
        if time_ms is not None and tables is not None:
            set_watermark(tables, self.job.table, time_ms)

    def dead_letters(self) -> int:
        """Different records in the table of dead letters."""
        snapshot = open_table(self.job.dead_letters)
        found: set[tuple[int, int]] = set()
        for file in snapshot.files() if snapshot is not None else ():
            table = pq.read_table(f"{self.job.dead_letters}/{file.path}", columns=["_partition", "_offset"], partitioning=None)
            found.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
        return len(found)


def group_lag(bootstrap: str, group: str, topic: str) -> int:
    """The sum over all partitions. The client's errors: WorldError, PeerError."""
    with Cluster(bootstrap, client_id="moldau-lag") as cluster:
        partitions = [TopicPartition(topic, each.partition) for each in cluster.topic(topic).partitions]
        committed = Groups(cluster).committed(group, partitions)
        first, end = (cluster.list_offsets(dict.fromkeys(partitions, which)) for which in (EARLIEST, LATEST))
    return sum(end[where].offset - (committed[where].offset if where in committed else first[where].offset) for where in partitions)
