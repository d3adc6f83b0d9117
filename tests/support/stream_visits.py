"""A job with state of its own, as docs/streams-state.md has it: visits of members. As a program: a job to kill."""

# ruff: noqa: N802, N803  # Spark's names
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from moldau.streams import StreamJob

SCHEMA = "at timestamp, member string, number int"
IDLE_MS = 30 * 60_000


class Visits(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.handle = handle
        self.visits = handle.getListState("visits", "begin long, pages long, end long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        known = [tuple(each) for each in self.visits.get()]
        times = [int(row.event_time.timestamp() * 1000) for row in rows]
        found: list[tuple[int, int, int]] = []
        for begin, pages, end in sorted([*known, *((time, 1, time + IDLE_MS) for time in times)]):
            if found and begin < found[-1][2]:
                first, before, last = found.pop()
                found.append((first, before + pages, max(last, end)))
            else:
                found.append((begin, pages, end))
        self.visits.put(found)
        was, now = {end for _, _, end in known}, {end for _, _, end in found}
        for end in was - now:
            self.handle.deleteTimer(end)
        for end in now - was:
            self.handle.registerTimer(end)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        known = [tuple(each) for each in self.visits.get()]
        self.visits.clear()
        for begin, pages, end in known:
            if end == expiredTimerInfo.getExpiryTimeInMs():
                yield Row(member=key[0], begin=datetime.fromtimestamp(begin / 1000, UTC), pages=pages)
            else:
                self.visits.appendValue((begin, pages, end))


def visits_job(bootstrap: str, directory: str, source: str, sink: str, **given: Any) -> StreamJob:
    """Visits into a topic and a table."""
    job = StreamJob("visits", brokers=bootstrap, directory=directory, **given)
    pages = job.topic(source, format="json", schema=SCHEMA, time="at")
    visits = pages.groupBy("member").transformWithState(Visits(), "member string, begin timestamp, pages long", "append", "EventTime")
    job.to_topic(visits, sink, key="member")
    job.to_table(visits, f"{directory}/table", time="begin")
    return job


if __name__ == "__main__":
    visits_job(*sys.argv[1:5]).main(sys.argv[5:])
