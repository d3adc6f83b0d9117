"""The stream job of the demonstration as a process: started beside the load, killed half way, resumed, stopped when it has read all.

In the end its topic and its table are compared with a query over the loaded table.
"""

import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.client.errors import RequestFailedError
from moldau.demo.airport_hours import NAME, TIME, hours, planes_of
from moldau.demo.children import ChildError, stream_job
from moldau.lake.table import read_table
from moldau.model.errors import ErrorCode, MoldauError
from moldau.streams.operator import StreamOperator

_LIMIT_S = 600.0
_LOOK_S = 0.3
_RESTARTS_MAX = 3
"""Spark gives a Python worker ten seconds to start, which is too little on a machine that is very busy."""
_STOP_S = 60.0
_PARTITIONS = 3
_NOTHING = (0, 0, 0)
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
    """Rows of topic and table that are there twice."""
    late_rows: int
    """As Spark counts them: rows, or groups of them, that came after the watermark."""
    late_events: int
    """Events of the table that no window has."""
    kills: int
    """In this run."""
    restarts: int
    """In this run, after the job had failed by itself."""
    different: int
    """Windows that are not as the query over the loaded table has them, in topic or table; those that lack late events are not meant."""

    @property
    def holds(self) -> bool:
        """Whether topic and table are what the query gives, but for events that were late, and counted."""
        return self.doubled == 0 and self.different == 0 and (self.late_events == 0 or self.late_rows > 0)


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
        self._all_there, self._given_up = threading.Event(), threading.Event()
        _ensure_topic(servers.bootstrap)
        self._operator = StreamOperator(servers.bootstrap)
        self._child = stream_job(self._words, self._log)
        self._follower = ThreadPoolExecutor(1, "moldau demo stream job")
        self._end = self._follower.submit(self._follow)

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


def compare(spark: Any, departures: Any, table: str, bootstrap: str, status: Mapping[str, Any], ends: tuple[int, int]) -> StreamFigures:
    """The job's topic and `table` beside a query over the loaded table, of which `departures` is a frame. What Spark raises.

    `ends` are kills and restarts.
    """
    right = {(row[0], row[1]): tuple(row[2:]) for row in _flat(hours(departures, planes_of(spark), TIME)).collect()}
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": NAME, "isolationLevel": "read_committed"}
    records = spark.read.format("moldau").options(**options).load().selectExpr("string(value) AS value")
    of_topic = _flat(records.selectExpr(f"from_json(value, '{_ROW}') AS row").select("row.*")).collect()
    of_table = _flat(read_table(spark, table)).collect()
    newest = [_newest(rows) for rows in (of_topic, of_table)]
    late = sum(figures[0] for figures in right.values()) - sum(figures[0] for figures in newest[0].values())
    return StreamFigures(
        job=NAME,
        topic=NAME,
        table=table,
        rows_in=_rows_of(status),
        windows=len(newest[0]),
        topic_rows=len(of_topic),
        table_rows=len(of_table),
        doubled=sum(len(rows) - len({tuple(row) for row in rows}) for rows in (of_topic, of_table)),
        late_rows=status["late_rows"],
        late_events=late,
        kills=ends[0],
        restarts=ends[1],
        different=_different(right, newest[0], late > 0) + _different(newest[0], newest[1], False),
    )


def _flat(rows: Any) -> Any:
    return rows.selectExpr("unix_millis(window.start)", "airport", "departures", "known_planes", "seats")


def _newest(rows: Iterable[Any]) -> dict[Hour, Figures]:
    """A window only grows, so that the row with most departures is its last."""
    found: dict[Hour, Figures] = {}
    for start, airport, *figures in rows:
        hour, each = (start, airport), (figures[0], figures[1], figures[2])
        found[hour] = max(each, found.get(hour, each))
    return found


def _different(right: Mapping[Any, Any], found: Mapping[Any, Any], some_late: bool) -> int:
    """Windows of which one has more than is right; or also fewer, if no event was late."""
    return sum(
        found.get(hour, _NOTHING)[0] > right.get(hour, _NOTHING)[0] if some_late else found.get(hour) != right.get(hour)
        for hour in right.keys() | found.keys()
    )
