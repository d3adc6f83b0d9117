"""Four jobs to kill, and what a plain query over all that their topics hold makes of it. As a program: one of them, until it is stopped.

Events come in order, an hour of them at a time, and none is late: so each job has one right result, whatever was killed meanwhile.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from moldau.streams import StreamJob, windows
from support.stream_jobs import SCHEMA, Event, event, events

Result = Counter[tuple[Any, ...]]
"""Rows by their content: each is there once."""
_READ = {"format": "json", "schema": SCHEMA, "time": "at", "delay": "3 hours", "records_max": 40}
_LAST = 100_000
"""The minute of the event that moves the watermark past all others."""
_GAP_MIN = 15


@dataclass(frozen=True, slots=True)
class Topics:
    """Of one job."""

    source: str
    other: str
    """The second one of a join."""
    sink: str


@dataclass(frozen=True, slots=True)
class KilledJob:
    """A job, what it is fed with, and what is right."""

    rows: Callable[[StreamJob, Topics], Any]
    hour: Callable[[int], tuple[list[Event], list[Event]]]
    """The events of an hour, for both topics."""
    expected: Callable[[list[Event], list[Event]], Result]
    """Of all events in both topics."""
    row: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    """A row of an output."""


def moment(value: Any) -> datetime:
    """A time as topics have it, or tables."""
    return (datetime.fromisoformat(value) if isinstance(value, str) else value).astimezone(UTC)


def _at(each: Event) -> datetime:
    return moment(each["at"])


def _read(job: StreamJob, topic: str) -> Any:
    return job.topic(topic, **_READ)  # type: ignore[arg-type]


# Counts by hour and airport


def _counts(job: StreamJob, topics: Topics) -> Any:
    return windows.tumbling(_read(job, topics.source), "1 hour", "airport")


def _counted(values: list[Event], _others: list[Event]) -> Result:
    counts = Counter((_at(each).replace(minute=0), each["airport"]) for each in values)
    return Counter((start, airport, count) for (start, airport), count in counts.items())


def _window(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return moment(row["window"]["start"]), row["airport"], row["count"]


# Sessions by airport: of 35 minutes in each hour


def _sessions(job: StreamJob, topics: Topics) -> Any:
    return windows.sessions(_read(job, topics.source), f"{_GAP_MIN} minutes", "airport")


def _in_sessions(values: list[Event], _others: list[Event]) -> Result:
    found: Result = Counter()
    for airport in {each["airport"] for each in values}:
        times = sorted(_at(each) for each in values if each["airport"] == airport)
        begins = [number for number, time in enumerate(times) if not number or (time - times[number - 1]).total_seconds() > _GAP_MIN * 60]
        for begin, end in zip(begins, [*begins[1:], len(times)], strict=True):
            found[times[begin], airport, end - begin] += 1
    return found


# Pairs: the second topic has an event five minutes after each second one of the first


def _pairs(job: StreamJob, topics: Topics) -> Any:
    left, right = _read(job, topics.source), _read(job, topics.other)
    return windows.join(left, right, "number", before="1 minute", after="10 minutes").select("number", "event_time", "right_event_time")


def _two_topics(hour: int) -> tuple[list[Event], list[Event]]:
    left = events(60 * hour, 60 * hour + 60)
    return left, [event(each["number"] + 5, "-", each["number"]) for each in left if each["number"] % 2 == 0]


def _paired(values: list[Event], others: list[Event]) -> Result:
    right: dict[int, list[datetime]] = {}
    for each in others:
        right.setdefault(each["number"], []).append(_at(each))
    return Counter(
        (each["number"], _at(each), time)
        for each in values
        for time in right.get(each["number"], ())
        if -60 <= (time - _at(each)).total_seconds() <= 600
    )


def _pair(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["number"], moment(row["event_time"]), moment(row["right_event_time"])


# Events without repetitions: each third one comes again at once, each fifth an hour later


def _distinct(job: StreamJob, topics: Topics) -> Any:
    return windows.distinct(_read(job, topics.source), "12 hours", "number").select("number", "event_time")


def _repeated(hour: int) -> tuple[list[Event], list[Event]]:
    new = events(60 * hour, 60 * hour + 60)
    before = events(60 * hour - 60, 60 * hour) if hour else []
    return [*new, *(each for each in new if each["number"] % 3 == 0), *(each for each in before if each["number"] % 5 == 0)], []


def _once(values: list[Event], _others: list[Event]) -> Result:
    return Counter({(each["number"], _at(each)): 1 for each in values})


JOBS: Mapping[str, KilledJob] = {
    "counts": KilledJob(_counts, lambda hour: (events(60 * hour, 60 * hour + 60), []), _counted, _window),
    "join": KilledJob(_pairs, _two_topics, _paired, _pair),
    "distinct": KilledJob(_distinct, _repeated, _once, lambda row: (row["number"], moment(row["event_time"]))),
    "sessions": KilledJob(_sessions, lambda hour: (events(60 * hour, 60 * hour + 35), []), _in_sessions, _window),
}


def last_events(name: str) -> tuple[list[Event], list[Event]]:
    """After these everything before them is closed."""
    last = [event(_LAST, "END", -1)]
    return last, [event(_LAST + 60, "END", -2)] if name == "join" else []


def without_last(values: Iterable[Event]) -> list[Event]:
    """The events whose windows are closed."""
    return [each for each in values if each["airport"] != "END"]


def table_of(directory: Path | str) -> str:
    """Where a job's table is."""
    return str(Path(directory, "table"))


def killed_job(name: str, bootstrap: str, directory: str, topics: Topics) -> StreamJob:
    """The job, into its topic and its table."""
    job = StreamJob(name, brokers=bootstrap, directory=str(Path(directory, "job")))
    rows = JOBS[name].rows(job, topics)
    job.to_topic(rows, topics.sink, query=name)
    job.to_table(rows, table_of(directory))
    return job


if __name__ == "__main__":
    name, bootstrap, directory, source, other, sink, *arguments = sys.argv[1:]
    killed_job(name, bootstrap, directory, Topics(source, other, sink)).main(arguments)
