"""The demonstration from beginning to end.

Its directory holds everything: the broker's data, the table, the dead letters, logs, and ``demo.json``, which says what it was made from. A
second run finds all there and adds nothing; a run after one that was killed adds what is left. One run at a time has the directory.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from moldau.lake.checksum import Tally
from moldau.lake.demo.inputs import BadLine, Event, EventInput
from moldau.lake.demo.report import GroupLag, Report, Step

GROUP = "moldau-demo"
"""The load's consumer group."""


class DemoError(RuntimeError):
    """The demonstration cannot run, or has to stop; what it did so far stays."""


class Progress(Protocol):
    """Who is told how it goes."""

    def begin(self, name: str, total: int | None) -> None:
        """A step begins, with so many events to come if that is known."""

    def advance(self, done: int) -> None:
        """So many of them are done."""

    def end(self, events: int, seconds: float) -> None:
        """The step has ended."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What to demonstrate with."""

    directory: Path
    input: EventInput
    partitions: int = 6
    compression: str = "zstd"
    refuse_bad_lines: bool = True
    """Whether a line that is no event stops the run before anything is published; otherwise it becomes a dead letter."""
    description: tuple[tuple[str, str | None], ...] = ()
    """What makes the input what it is: path, key and time; another one may not use the same directory."""
    cores: int = 2


def run_demo(options: DemoOptions, progress: Progress) -> Report:
    """Do it all. DemoError, InputError, PublishError, BrokerStartError, and what Spark raises."""
    from moldau.lake.demo.broker_process import BrokerProcess
    from moldau.lake.tables.delta import uri_of

    directory = options.directory.resolve()
    try:
        uri_of(str(directory))
    except ValueError as error:
        raise DemoError(str(error)) from None
    with _sole_user(directory):
        _check_description(directory, options)
        return _Run(options, directory, progress).all_steps(BrokerProcess(directory / "broker", directory / "broker.log"))


@contextmanager
def _sole_user(directory: Path) -> Iterator[None]:
    """A lock on the directory that ends with this process, however it ends."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "demo.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError(f"{directory}: another run is at work here") from None
        yield


def _check_description(directory: Path, options: DemoOptions) -> None:
    """The same directory is used for the same thing: other partitions or another key would scatter the lines anew."""
    mine = {**dict(options.description), "topic": options.input.topic, "partitions": options.partitions}
    file = directory / "demo.json"
    if not file.exists():
        new = directory / "demo.json.new"
        new.write_text(json.dumps(mine))
        os.replace(new, file)
        return
    theirs = json.loads(file.read_text())
    for name in mine:
        if theirs.get(name) != mine[name]:
            raise DemoError(f"{directory} was made with {name} {theirs.get(name)!r}, not {mine[name]!r}; use another --dir")


class _Run:
    """One run: steps, and how long they took."""

    def __init__(self, options: DemoOptions, directory: Path, progress: Progress) -> None:
        self._options = options
        self._directory = directory
        self._progress = progress
        self._steps: list[Step] = []

    def all_steps(self, broker: Any) -> Report:
        from moldau.lake.group_lag import group_lag

        options, topic = self._options, self._options.input.topic
        schema = self._step("read the columns", None, lambda: (options.input.schema(), 0))
        if options.refuse_bad_lines and not options.input.trusted:
            self._step("check the lines", options.input.size_hint(), self._refuse_bad_lines)
        self._step("start the broker", None, lambda: (broker.start(), 0))
        try:
            published = self._step("publish", options.input.size_hint(), lambda: self._publish(broker.bootstrap))
            spark = self._step("start Spark", None, lambda: (self._start_spark(), 0))
            try:
                job = self._job(broker.bootstrap, schema)
                lag_before = group_lag(broker.bootstrap, GROUP, topic)
                loaded = self._step("load", None, lambda: self._load(spark, job))
                lag_after = group_lag(broker.bootstrap, GROUP, topic)
                log = self._step("count the log", published.read, lambda: self._count_log(spark, broker.bootstrap))
                lake, dead = self._step("count the table", published.read, lambda: self._count_table(spark, job))
                questions = self._step("ask the table", None, lambda: (self._ask(spark, job), 0))
            finally:
                spark.stop()
        finally:
            broker.stop()
        files, size, version = table_size(job.table)
        return Report(
            input=options.input.name,
            topic=topic,
            table=job.table,
            expected=published.all,
            log=log,
            lake=lake,
            dead_letters=dead,
            expected_dead=published.rejected,
            sent=published.sent,
            sent_bytes=published.sent_bytes,
            loaded=loaded.rows,
            log_bytes=sum(file.stat().st_size for file in (self._directory / "broker").glob(f"**/{topic}-*/*.log")),
            lake_bytes=size,
            lake_files=files,
            table_version=version,
            steps=tuple(self._steps),
            questions=questions,
            bad_lines=tuple(published.bad_shown),
            lag=GroupLag(GROUP, lag_before, lag_after),
        )

    def _step(self, name: str, total: int | None, work: Callable[[], tuple[Any, int]]) -> Any:
        """Run one step, which says how many events it dealt with."""
        self._progress.begin(name, total)
        begun = time.monotonic()
        result, events = work()
        step = Step(name, events, time.monotonic() - begun)
        self._steps.append(step)
        self._progress.end(step.events, step.seconds)
        return result

    def _refuse_bad_lines(self) -> tuple[None, int]:
        source = self._options.input
        count = 0
        for item in source.events():
            if isinstance(item, BadLine):
                raise DemoError(f"{source.name}:{item.line}: {item.reason} (with --bad-lines dead-letter such lines are kept apart)")
            count += 1
            if count % 2_000 == 0:
                self._progress.advance(count)
        return None, count

    def _publish(self, bootstrap: str) -> tuple[Any, int]:
        from moldau.lake.demo.publish import ensure_topic, publish

        options, topic = self._options, self._options.input.topic
        ensure_topic(bootstrap, topic, options.partitions)
        lines: Iterator[Event | BadLine] = options.input.events()
        result = publish(bootstrap, topic, options.partitions, lines, compression=options.compression, progress=self._progress.advance)
        return result, result.sent

    def _start_spark(self) -> Any:
        from moldau.lake.session import start_spark

        return start_spark("moldau demo", str(self._directory / "spark"), cores=self._options.cores)

    def _job(self, bootstrap: str, schema: Any) -> Any:
        import pyarrow as pa

        from moldau.lake.demo.publish import REJECT_HEADER
        from moldau.lake.load_job import LoadJob

        topic = self._options.input.topic
        lake = self._directory / "lake"
        return LoadJob(
            name="demo",
            bootstrap=bootstrap,
            topic=topic,
            table=str(lake / topic),
            dead_letters=str(lake / f"{topic}-dead-letters"),
            columns=schema,
            headers={"line": pa.int64()},
            reject_header=REJECT_HEADER,
            group_id=GROUP,
        )

    def _load(self, spark: Any, job: Any) -> tuple[Any, int]:
        from moldau.lake.load import load

        result = load(spark, job)
        return result, result.rows + result.dead_letters

    def _count_log(self, spark: Any, bootstrap: str) -> tuple[Tally, int]:
        from moldau.lake.checksum import tally_of_log

        tally = tally_of_log(spark, bootstrap, self._options.input.topic)
        return tally, tally.events

    def _count_table(self, spark: Any, job: Any) -> tuple[tuple[Tally, Tally], int]:
        from moldau.lake.checksum import tally_of_dead_letters, tally_of_table
        from moldau.lake.table import open_table, read_table

        lake = tally_of_table(read_table(spark, job.table))
        dead = Tally(0, 0, 0)
        if open_table(job.dead_letters) is not None:
            dead = tally_of_dead_letters(spark, read_table(spark, job.dead_letters), job.bootstrap, job.topic)
        return (lake, dead), lake.events + dead.events

    def _ask(self, spark: Any, job: Any) -> Any:
        from moldau.lake.demo.flights import FlightsInput
        from moldau.lake.demo.questions import ANY_EVENTS, FLIGHTS, ask
        from moldau.lake.table import read_table

        return ask(spark, read_table(spark, job.table), FLIGHTS if isinstance(self._options.input, FlightsInput) else ANY_EVENTS)


def table_size(path: str) -> tuple[int, int, int]:
    """Files and bytes of a table's newest snapshot, and its version."""
    from deltalake import DeltaTable

    from moldau.lake.tables.delta import uri_of

    table = DeltaTable(uri_of(path))
    sizes = table.get_add_actions(flatten=True)["size_bytes"].to_pylist()
    return len(sizes), sum(sizes), table.version()
