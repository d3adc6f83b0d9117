"""Bringing the queries of a job to the same offsets, with all that the watermark there gives in their outputs.

A query that is stopped at a batch's end has not always written what its last batch's watermark closes: Spark does that in the batch after
it, which needs no new records. So the queries are limited (`moldau.lake.reading.limits`) to what they have, first each to its own place,
then all to that of the one which is furthest, and at each step they run until they have nothing to do.
"""

import threading
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from moldau.lake.reading.limits import StreamLimits
from moldau.streams.checkpoints import Checkpoint, Positions
from moldau.streams.reports import QueryReport


class RestingQuery(Protocol):
    """A query that runs."""

    def process_all(self) -> None:
        """Until it has nothing to do, or has ended. Py4JError, PySparkException."""


class Rest:
    """Waits, in a thread, until queries have nothing to do. One that ends has nothing to do; its own status has why."""

    def __init__(self, queries: Sequence[RestingQuery]) -> None:
        self._queries = queries
        self._reached = threading.Event()
        threading.Thread(target=self._wait, name="moldau-stream-rest", daemon=True).start()

    @property
    def is_reached(self) -> bool:
        """Whether they have."""
        return self._reached.is_set()

    def _wait(self) -> None:
        for query in self._queries:
            try:
                query.process_all()
            except (Py4JError, PySparkException):
                continue  # it has failed, which its own status has
        self._reached.set()


class LimitedRun(Protocol):
    """A run of a job, as it is settled."""

    topics: Sequence[str]

    def limit(self, limits: StreamLimits) -> None:
        """From now on the queries read within these limits."""

    def rest(self) -> Rest:
        """Reached when the queries have nothing to do."""

    def furthest(self) -> dict[str, dict[str, int]]:
        """Up to where the query reads that is furthest."""

    def is_complete(self) -> bool:
        """Whether the outputs have all that the watermarks give."""


class Settling:
    """Brings the queries of a run to the same offsets. One that began without new records has one more batch, which closes windows."""

    def __init__(self, run: LimitedRun) -> None:
        self._run = run
        self._step = 0
        run.limit(StreamLimits(ends={topic: {} for topic in run.topics}))
        self._rest = run.rest()

    def step(self) -> bool:
        """Whether they stand there."""
        if not self._rest.is_reached:
            return False
        self._step += 1
        ends = self._run.furthest()
        if self._step == 1:
            self._run.limit(StreamLimits(ends=ends))
        elif self._step == 2 and not self._run.is_complete():
            self._run.limit(StreamLimits(ends=ends, round=new_round()))
        else:
            return True
        self._rest = self._run.rest()
        return False


def new_round() -> str:
    """A round of limits that was not there before."""
    return uuid.uuid4().hex[:8]


def furthest_of(checkpoints: Iterable[Checkpoint]) -> dict[str, dict[str, int]]:
    """By topic and partition the furthest offset that any of the queries has planned to read up to."""
    return _merged([each.furthest(newest) for each in checkpoints if (newest := each.newest()) is not None], max)


def nearest_of(checkpoints: Iterable[Checkpoint]) -> dict[str, dict[str, int]]:
    """By topic and partition the offset that all of the queries have planned to read up to."""
    return _merged([each.batch(newest).ends for each in checkpoints if (newest := each.newest()) is not None], min)


def _merged(positions: Iterable[Positions], of_two: Any) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for each in positions:
        for topic, partitions in each.items():
            of_topic = found.setdefault(topic, {})
            for partition, offset in partitions.items():
                of_topic[partition] = of_two(offset, of_topic.get(partition, offset))
    return found


def merged_positions(positions: Iterable[Positions]) -> dict[str, dict[str, int]]:
    """By topic and partition the greatest offset."""
    return _merged(positions, max)


def nearest_positions(reports: Iterable[QueryReport]) -> dict[str, dict[str, int]]:
    """By topic and partition the offset up to which all queries have written."""
    return _merged([each.positions for each in reports], min)


def is_at(here: Positions, there: Positions) -> bool:
    """Whether the topics that both have are at the same offsets."""
    return all(here[topic].get(partition) == offset for topic, of in there.items() if topic in here for partition, offset in of.items())


def has_reached(here: Positions, ends: Positions) -> bool:
    """Whether no partition of a topic that both have is before the end."""
    return all(here[topic].get(partition, 0) >= offset for topic, of in ends.items() if topic in here for partition, offset in of.items())
