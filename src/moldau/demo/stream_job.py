"""The stream job of the demonstration as a process: started beside the load, killed half way, resumed, stopped when it has read all.

Some events are published when it takes them for late. In the end its topic and its table are compared with a query over the loaded table,
without the events that it has put aside as late; those have to be the ones that were published late.
"""

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from moldau.audit.tree import Tier, TierTree
from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.client.errors import RequestFailedError
from moldau.demo.airport_hours import NAME, TIER, TIME, hours, late_table, planes_of
from moldau.demo.children import ChildError, stream_job
from moldau.demo.inputs import LINE_FIELD
from moldau.lake.table import read_table
from moldau.lake.tables.opening import open_table
from moldau.model.errors import ErrorCode, MoldauError
from moldau.streams.operator import StreamOperator

_LIMIT_S = 600.0
_LOOK_S = 0.3
_RESTARTS_MAX = 3
"""Spark gives a Python worker ten seconds to start, which is too little on a machine that is very busy."""
_STOP_S = 60.0
_PARTITIONS = 3
_ROW = "window struct<start: timestamp, end: timestamp>, airport string, departures long, known_planes long, seats long"
_KEPT = {"retention.ms": "-1", "retention.bytes": "-1"}

Hour = tuple[int, str]
"""The start of a window, in milliseconds since 1970, and an airport."""
Figures = tuple[int, int, int]
"""Departures, those of known planes, and their seats."""


@dataclass(frozen=True, slots=True)
class StreamFigures:
    """What the job has read and written, whichever run it was."""

    job: str
    topic: str
    table: str
    rows_in: int
    windows: int
    """Hours of airports, in the topic and in the table."""
    topic_rows: int
    table_rows: int
    """Rows: one for each change of a window."""
    doubled: int
    """Rows of topic and tables that are there twice."""
    late_events: int
    """Events that no window has, since they came after the watermark; they are in the table of late ones."""
    provoked: int
    """Events that were published late on purpose."""
    provoked_late: int
    """How many of those are among the late ones."""
    kills: int
    """In this run."""
    restarts: int
    """In this run, after the job had failed by itself."""
    different: int
    """Windows that are not as the query has them over the loaded table without the late events, in topic or table."""

    @property
    def holds(self) -> bool:
        """Whether topic and table are what the query gives, and what was published late is what was late."""
        return self.doubled == 0 and self.different == 0 and self.provoked_late == self.provoked == self.late_events


class DemoStreamJob:
    """The process, and a thread that follows it."""

    def __init__(self, servers: Any, topic: str, directory: Path, *, cores: int, to_read: int | None) -> None:
        """`to_read`: it is killed once, when it has read half of so many events; None: it is not killed."""
        self._topic = topic
        self.table = str(directory / "lake" / NAME)
        self._log = directory / "stream-job.log"
        self._words = [topic, servers.bootstrap, servers.registry, str(directory / "stream-job"), self.table, str(cores)]
        self._to_read = to_read
        self.kills = self.restarts = 0
        """How often it was killed, and was started again after it had failed by itself."""
        self._watermark_ms = 0
        """Of its last batch, as the thread has seen it."""
        self._all_there, self._given_up = threading.Event(), threading.Event()
        _ensure_topic(servers.bootstrap)
        self._operator = StreamOperator(servers.bootstrap)
        self._child = stream_job(self._words, self._log)
        self._follower = ThreadPoolExecutor(1, "moldau demo stream job")
        self._end = self._follower.submit(self._follow)

    def wait_for_watermark(self, time_ms: int) -> None:
        """Until what comes next is late if its window has ended by then. ChildError."""
        deadline = time.monotonic() + _LIMIT_S
        while self._watermark_ms < time_ms:
            if self._end.done():
                self._end.result()
            if time.monotonic() > deadline:
                raise ChildError(f"the stream job has no watermark of the year's first day after {_LIMIT_S:.0f} s; {self._log} has more")
            time.sleep(_LOOK_S)

    def finish(self) -> Mapping[str, Any]:
        """All events are there: wait until it has read them, and stop it; its last status. ChildError."""
        self._all_there.set()
        return self._end.result()

    def stop(self) -> None:
        """End it at once."""
        self._given_up.set()
        self._follower.shutdown()
        self._child.kill()
        self._operator.close()

    def _follow(self) -> Mapping[str, Any]:
        """Kill it half way and start it again; stop it at the end."""
        deadline = None
        while not self._given_up.wait(_LOOK_S):
            status = self._status()
            if status is not None:
                self._watermark_ms = status["watermark_ms"] or 0
            if status is not None and self._to_read is not None and self.kills == 0 and _rows_of(status) * 2 >= self._to_read:
                self._child.kill()
                self.kills += 1
                self._child = stream_job(self._words, self._log)
            elif self._all_there.is_set():
                deadline = deadline or time.monotonic() + _LIMIT_S
                if status is not None and self._has_read_all(status):
                    return self._stopped()
                if time.monotonic() > deadline:
                    raise ChildError(f"the stream job has not read everything after {_LIMIT_S:.0f} s; {self._log} has more")
            if self._child.process.poll() is not None:
                if self.restarts == _RESTARTS_MAX:
                    raise ChildError(f"the stream job has ended; {self._log} ends with: {self._child.output()}")
                self.restarts += 1
                self._child = stream_job(self._words, self._log)
        return {}

    def _stopped(self) -> Mapping[str, Any]:
        try:
            self._operator.stop(NAME, _STOP_S)
            self._child.process.wait(_STOP_S)
            return dict(self._operator.status(NAME)["queries"][0])
        except (MoldauError, TimeoutExpired) as error:
            raise ChildError(f"the stream job was not stopped: {error}; {self._log} has more") from error

    def _status(self) -> Mapping[str, Any] | None:
        """Of the process that runs now; None while there is none."""
        with suppress(MoldauError):  # a broker is away, or the job has never run
            found = self._operator.status(NAME)
            if found["pid"] == self._child.process.pid and found["queries"]:
                return dict(found["queries"][0])
        return None

    def _has_read_all(self, status: Mapping[str, Any]) -> bool:
        return self._topic in status["lags"] and status["lag_records"] == 0


def _ensure_topic(bootstrap: str) -> None:
    with Cluster(bootstrap, client_id="moldau-demo") as cluster:
        try:
            Admin(cluster).create_topic(NAME, _PARTITIONS, configs=_KEPT)
        except RequestFailedError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise


def _rows_of(status: Mapping[str, Any]) -> int:
    return sum(each["rows"] for each in status["inputs"].values())


def compare(
    spark: Any, departures: Any, table: str, bootstrap: str, status: Mapping[str, Any], ends: tuple[int, int], provoked: Collection[int]
) -> StreamFigures:
    """The job's topic and `table` beside a query over the loaded table, of which `departures` is a frame. What Spark raises.

    `ends` are kills and restarts, `provoked` the lines that were published late.
    """
    late = _late_lines(spark, table)
    in_time = departures.filter(~departures[LINE_FIELD].isin(late)) if late else departures
    right = {(row[0], row[1]): tuple(row[2:]) for row in _flat(hours(in_time, planes_of(spark), TIME)).collect()}
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": NAME, "isolationLevel": "read_committed"}
    records = spark.read.format("moldau").options(**options).load().selectExpr("string(value) AS value")
    of_topic = _flat(records.selectExpr(f"from_json(value, '{_ROW}') AS row").select("row.*")).collect()
    of_table = _flat(read_table(spark, table)).collect()
    newest = [_newest(rows) for rows in (of_topic, of_table)]
    written: list[list[Any]] = [[tuple(row) for row in of_topic], [tuple(row) for row in of_table], late]
    return StreamFigures(
        job=NAME,
        topic=NAME,
        table=table,
        rows_in=_rows_of(status),
        windows=len(newest[0]),
        topic_rows=len(of_topic),
        table_rows=len(of_table),
        doubled=sum(len(rows) - len(set(rows)) for rows in written),
        late_events=len(set(late)),
        provoked=len(provoked),
        provoked_late=len(set(provoked) & set(late)),
        kills=ends[0],
        restarts=ends[1],
        different=_different(right, newest[0]) + _different(newest[0], newest[1]),
    )


def _late_lines(spark: Any, table: str) -> list[int]:
    """Of the events that the job has put aside as late."""
    if open_table(late_table(table)) is None:
        return []
    return [row[0] for row in read_table(spark, late_table(table)).select(LINE_FIELD).collect()]


def with_stream_tier(tree: TierTree, cluster_tier: str) -> TierTree:
    """The tiers, and the job, which reads what this tier has."""
    return TierTree.of([*tree.tiers, Tier(TIER, (cluster_tier,))])


def _flat(rows: Any) -> Any:
    return rows.selectExpr("unix_millis(window.start)", "airport", "departures", "known_planes", "seats")


def _newest(rows: Iterable[Any]) -> dict[Hour, Figures]:
    """A window only grows, so that the row with most departures is its last."""
    found: dict[Hour, Figures] = {}
    for start, airport, *figures in rows:
        hour, each = (start, airport), (figures[0], figures[1], figures[2])
        found[hour] = max(each, found.get(hour, each))
    return found


def _different(right: Mapping[Any, Any], found: Mapping[Any, Any]) -> int:
    """Windows that are not the same."""
    return sum(found.get(hour) != right.get(hour) for hour in right.keys() | found.keys())
