"""A stream job as a user writes it: topics in, DataFrames between, topics and tables out."""

import logging
import os
import re
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from moldau.lake.planning_processes import end_planning_processes
from moldau.lake.reading.event_times import COLUMN as EVENT_TIME
from moldau.lake.tables.places.addresses import absolute
from moldau.streams.avro_values import AvroValues
from moldau.streams.compacted import CompactedStore, compacted_store
from moldau.streams.errors import StreamError
from moldau.streams.inputs import STOP, TopicInput, pinned, read_topic
from moldau.streams.late import LateOutput, late_output
from moldau.streams.names import NAME, parse_job_name
from moldau.streams.outputs import Output, TopicOutput, columns_of
from moldau.streams.plans import counted_inputs, topics_read
from moldau.streams.progress import METRIC
from moldau.streams.queries import JobQuery
from moldau.streams.runner import JobRun
from moldau.streams.session import configured, is_shared, session
from moldau.streams.started import AT_ONCE
from moldau.streams.starts import starts_now
from moldau.streams.table_output import TableOutput
from moldau.streams.tables import TableStore, table_store
from moldau.streams.through import read_through, through_output
from moldau.streams.tier import TierPlan
from moldau.tracking.audit_record import PRODUCER_TIER, TIER_NAME

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from moldau.streams.checkpoints import Positions

log = logging.getLogger(__name__)

_BROKERS = "127.0.0.1:9092"
_MODES = ("append", "update")


class StreamJob:
    """A job by this name, at the brokers of one cluster; its checkpoints lie below `directory`.

    `brokers` and `registry` are MOLDAU_BOOTSTRAP and MOLDAU_REGISTRY of the environment if they are not given. `spark` is the session of
    this process, or one that is started when the first topic is read. With `tier` the tracked events that it reads are counted under that
    name for the audit. ValueError for a name or an argument that is not valid.
    """

    def __init__(
        self,
        name: str,
        *,
        directory: str,
        brokers: str | None = None,
        registry: str | None = None,
        spark: Any = None,
        trigger: str = AT_ONCE,
        cores: int = 2,
        memory: str = "1g",
        settings: Mapping[str, str] | None = None,
        task_tries: int = 4,
        tier: str | None = None,
    ) -> None:
        self.name = parse_job_name(name)
        self.directory = directory
        self.brokers = brokers or os.environ.get("MOLDAU_BOOTSTRAP") or _BROKERS
        self.registry = registry or os.environ.get("MOLDAU_REGISTRY")
        self._spark = None if spark is None else configured(spark)
        self._is_alone = False
        """Whether this job has started its Spark."""
        self._session = {"cores": cores, "memory": memory, "settings": dict(settings or {}), "task_tries": task_tries}
        self._trigger = trigger
        if tier is not None and (TIER_NAME.fullmatch(tier) is None or tier == PRODUCER_TIER):
            raise ValueError(f"job {name}: a tier's name has letters, digits, '.', '_' and '-', and is not {PRODUCER_TIER!r}: {tier!r}")
        self._tier = tier
        self._inputs: list[TopicInput] = []
        self._frames: dict[str, tuple[TopicInput, Any]] = {}
        self._late: list[tuple[Any, LateOutput]] = []
        self._stores: list[str] = []
        self._outputs: list[tuple[Any, str, Output, str | None]] = []
        self._running: JobRun | None = None
        self._stop_wanted = False
        self._limits_file = os.path.join(tempfile.gettempdir(), f"moldau-stream-{uuid.uuid4().hex}.json")
        """There only while the job runs within limits: while it is reprocessed, or settles."""

    @property
    def spark(self) -> Any:
        """The session. SessionError."""
        if self._spark is None:
            self._is_alone = not is_shared()
            self._spark = session(self.name, **self._session)  # type: ignore[arg-type]  # they are the arguments of this name
        return self._spark

    @property
    def group(self) -> str:
        """The consumer group to which the inputs' offsets are committed, for tools that show lags."""
        return f"moldau-stream-{self.name}"

    def topic(
        self,
        topic: str,
        *,
        format: str = "bytes",  # noqa: A002  # Spark's word
        schema: "str | StructType | None" = None,
        time: str | None = None,
        delay: str = "10 minutes",
        future: str = "1 hour",
        start: str = "earliest",
        records_max: int | None = None,
        undecodable: str = STOP,
        options: Mapping[str, str] | None = None,
    ) -> Any:
        """A topic as a streaming DataFrame with the column `event_time`, whose watermark is `delay` behind the newest event.

        See `moldau.streams.inputs.TopicInput` for the arguments. An event that is further ahead than `future` of the time of its batch gets
        the time of its record in the log. ValueError, OptionError; RegistryError, RegistryUnavailableError for Avro.
        """
        same = sum(each.topic == topic for each in self._inputs)
        given = TopicInput(
            topic, format, schema, self.registry, time, delay, future, start, records_max, undecodable,
            {**(options or {}), "limitsFile": self._limits_file},
            f"{topic} ({same + 1})" if same else topic,
        )  # fmt: skip
        given = pinned(given)
        dead_letters = os.path.join(os.path.abspath(self.directory), "dead-letters", topic)
        frame = read_topic(self.spark, given, brokers=self.brokers, group=self.group, dead_letters=dead_letters)
        self._inputs.append(given)
        self._frames[given.counted_as] = given, frame
        return frame

    def table(
        self,
        path: str,
        *,
        key: str | Sequence[str],
        columns: Sequence[str] | None = None,
        version: int | None = None,
        latest: str | None = None,
    ) -> TableStore:
        """A table of the lake as a secondary store: `planes.join(flights, on="tail")` gives rows the columns that it has for their key.

        All rows of a batch see one version, the newest when the batch began or `version`, also when the batch is repeated. `latest` is the
        column whose greatest value counts where a key has several rows. Each Python process of Spark holds the columns in memory.
        TableError, ValueError.
        """
        path = absolute(path)
        return table_store(path, self._store_name(path), os.path.abspath(self.directory), columns_of(key), columns, version, latest)

    def compacted(
        self,
        topic: str,
        *,
        format: str = "json",  # noqa: A002  # Spark's word
        schema: "str | StructType | None" = None,
        undecodable: str = STOP,
    ) -> CompactedStore:
        """A compacted topic as a secondary store, as `table`: the latest value of each key when the batch began. ValueError."""
        self.spark  # noqa: B018  # a schema is parsed by it
        name, directory = self._store_name(topic), os.path.abspath(self.directory)
        return compacted_store(topic, name, directory, self.brokers, format, schema, undecodable)

    def through(
        self,
        frame: Any,
        topic: str,
        *,
        key: str | Sequence[str],
        partitions: int | str | None = None,
        delay: str = "10 minutes",
        records_max: int | None = None,
        query: str | None = None,
    ) -> Any:
        """The same rows by way of a topic of the job's own, divided there by Kafka's hash of `key`; a stream with the same columns.

        The topic is made if it is missing, with `partitions`: a number, or the name of a topic that has as many. ValueError, StreamError.
        """
        output = through_output(frame, topic, self.brokers, columns_of(key), partitions)
        self._add(frame, "append", output, query)
        return read_through(self.spark, output, group=self.group, delay=delay, records_max=records_max)

    def _store_name(self, place: str) -> str:
        """Of the notes of its versions: the same at each start."""
        name = _plain_name(place, "store")
        self._stores.append(name)
        return name if (same := self._stores.count(name)) == 1 else f"{name}.{same}"

    def to_topic(
        self,
        frame: Any,
        topic: str,
        *,
        key: str | Sequence[str] | None = None,
        value: str | None = None,
        headers: str | None = None,
        mode: str = "append",
        query: str | None = None,
        options: Mapping[str, str] | None = None,
        format: str = "json",  # noqa: A002  # Spark's word
        subject: str | None = None,
        schema: str | None = None,
    ) -> None:
        """Write the rows to a topic: `key` names the columns of the key, `value` the one of the value; without it all are a JSON object.

        With `format="avro"` all are an Avro value, by the schema of the columns, by `schema`, or with `schema="latest"` by the latest of
        `subject` (TOPIC-value). `mode` is `append`, which gives a window's row when the watermark has passed its end, or `update`. Outputs
        of one DataFrame are one query, named after the first of them or by `query`. ValueError.
        """
        avro = self._avro_values(topic, format, subject, schema, value)
        output = TopicOutput(topic, self.brokers, columns_of(key), value, headers, tuple((options or {}).items()), avro)
        self._add(frame, mode, output, query)

    def _avro_values(self, topic: str, kind: str, subject: str | None, schema: str | None, value: str | None) -> AvroValues | None:
        def must(fine: bool, problem: str) -> None:
            if not fine:
                raise ValueError(f"topic {topic}: {problem}")

        must(kind in ("json", "avro"), f"rows are written as json or avro, not as {kind!r}")
        if kind == "json":
            must(subject is None and schema is None, "only values in Avro have a subject and a schema: format='avro'")
            return None
        must(value is None, "a value that is a column already is not written as Avro")
        must(self.registry is not None, "format avro needs a schema registry: StreamJob(registry=...)")
        assert self.registry is not None
        return AvroValues(self.registry, subject or f"{topic}-value", topic, schema)

    def to_table(
        self,
        frame: Any,
        path: str,
        *,
        time: str | None = None,
        partition: str = "day",
        table_format: str = "delta",
        mode: str = "append",
        query: str | None = None,
    ) -> None:
        """Write the rows to the table in a directory, made if it is missing: `day` or `hour` partitions by the column `time`, which is the
        start of the window or the event time if it is not given."""
        names = [name.lower() for name in frame.columns]
        if time is None:
            kind = dict(frame.dtypes).get("window", "")
            time = "window.start" if kind.startswith("struct<start:") else EVENT_TIME if EVENT_TIME in names else None
        if time is None:
            raise ValueError(f"{path}: the rows have neither a window nor {EVENT_TIME}: name with time= the column to partition by")
        self._add(frame, mode, _table(path, time, partition, table_format), query)

    def late_to_table(
        self,
        frame: Any,
        path: str,
        *,
        of: str | None = None,
        choose: Callable[[Any], Any] | None = None,
        time: str = EVENT_TIME,
        partition: str = "day",
        table_format: str = "delta",
    ) -> None:
        """Write to a table what comes late for the query of `frame`, a DataFrame that the job writes: the rows of the topic `of`, or of the
        only one, with `_watermark` and `_late_ms`.

        `choose` makes of a DataFrame of late rows the one that is written: `lambda late: windows.closed(late, "1 hour")` has those alone
        that no window takes. A batch with late rows is read a second time. ValueError.
        """
        self._add_late(frame, _table(path, time, partition, table_format), of, choose)

    def late_to_topic(
        self,
        frame: Any,
        topic: str,
        *,
        of: str | None = None,
        choose: Callable[[Any], Any] | None = None,
        key: str | Sequence[str] | None = None,
        value: str | None = None,
        headers: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Write late rows to a topic, as `late_to_table`; the other arguments are those of `to_topic`."""
        self._add_late(frame, TopicOutput(topic, self.brokers, columns_of(key), value, headers, tuple((options or {}).items())), of, choose)

    def _add_late(self, frame: Any, output: Output, of: str | None, choose: Callable[[Any], Any] | None) -> None:
        self._check_place(output)
        self._late.append((frame, late_output(frame, self._frames, self.brokers, output, of, choose)))

    def _check_place(self, output: Output) -> None:
        if output.place in (*(each.place for _, _, each, _ in self._outputs), *(each.place for _, each in self._late)):
            raise ValueError(f"job {self.name} writes to {output.place} already")

    def _add(self, frame: Any, mode: str, output: Output, query: str | None) -> None:
        if not frame.isStreaming:
            raise ValueError(f"{output.place}: the DataFrame is no stream: begin with job.topic(...)")
        if mode not in _MODES:
            raise ValueError(f"{output.place}: mode is append or update, not {mode!r}")
        if query is not None and NAME.fullmatch(query) is None:
            raise ValueError(f"{output.place}: a query's name has letters, digits, '.', '_' and '-', not {query!r}")
        self._check_place(output)
        self._outputs.append((frame, mode, output, query))

    def input_topics(self) -> list[str]:
        """The topics that it reads, each once."""
        return list(dict.fromkeys(each.topic for each in self._inputs))

    def queries(self) -> list[JobQuery]:
        """One for each DataFrame that is written. ValueError."""
        found: list[JobQuery] = []
        for frame, mode, output, name in self._outputs:
            number = next((number for number, each in enumerate(found) if each.frame is frame), None)
            if number is None:
                found.append(JobQuery(name or output.name, frame, (output,), mode, self._trigger))
                continue
            if found[number].mode != mode:
                raise ValueError(f"{output.place}: outputs of one DataFrame have one mode, here append and update")
            found[number] = replace(found[number], outputs=(*found[number].outputs, output))
        for frame, late in self._late:
            number = next((number for number, each in enumerate(found) if each.frame is frame), None)
            if number is None:
                raise ValueError(f"{late.place}: late rows are those of a DataFrame that the job writes, with to_topic or to_table")
            found[number] = replace(found[number], late=(*found[number].late, late))
        names = [each.name for each in found]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"job {self.name}: two queries have the name {twice[0]}; give them names with query=")
        return found

    def run(
        self,
        *,
        once: bool = False,
        fresh: bool = False,
        savepoint: str | None = None,
        tell: Callable[[str], object] = log.info,
    ) -> None:
        """Run until all that the topics have now is written (`once`), or until it is stopped or fails. See `JobRun.run` for errors.

        From a savepoint the outputs get again what they have of the time after it. Without `once` it has a line to `tell` when it runs.
        """
        with self._run() as running:
            running.run(once=once, fresh=fresh, savepoint=savepoint, tell=tell)

    def reprocess(
        self,
        start: "str | int | Positions" = "earliest",
        *,
        origin: str | None = None,
        savepoint: str | None = None,
        switch: bool = True,
        once: bool = False,
        fresh: bool = False,
        whole: bool = False,
        tell: Callable[[str], object] = log.info,
    ) -> None:
        """Make another generation of the job's checkpoints and outputs beside the running one, from `start` (`earliest`, a time in ms, or
        offsets) or a savepoint; switch to it when it has caught up, and run as the job until it is stopped, or with `once` until then.

        `origin` names the start for people. See docs/streams-reprocessing.md. Errors as those of `run`.
        """
        from moldau.streams.reprocessing import reprocess

        what = origin or (f"savepoint {savepoint}" if savepoint is not None else str(start))
        with self._run() as running:
            reprocess(
                running, self.name, self.brokers, self.directory, start, what, savepoint,
                switch=switch, once=once, fresh=fresh, whole=whole, tell=tell,
            )  # fmt: skip

    @contextmanager
    def _run(self) -> Iterator[JobRun]:
        queries = self.queries()
        if not queries:
            raise StreamError(f"job {self.name} writes nothing: call to_topic or to_table")
        running = JobRun(
            self.name, self.brokers, self.directory, self.spark, queries, self._limits_file, self.input_topics(),
            lambda names: self._starts_now([each for each in queries if each.name in names]), self._tier_plan(queries),
            on_begun=lambda: self._spare(len(queries)),
        )  # fmt: skip
        self._running = running
        if self._stop_wanted:
            running.stop()
        try:
            yield running
        finally:
            self._running = None
            running.close()

    def _spare(self, number: int) -> None:
        """So many queries run: end what Spark needed to begin them, if there are no others."""
        if self._is_alone and len(self.spark.streams.active) == number:
            end_planning_processes(self.spark)

    def _starts_now(self, queries: Sequence[JobQuery]) -> "Positions":
        """Where the inputs of these queries begin, if not at their first records. StreamError; WorldError, PeerError."""
        read = {topic for query in queries for topic in topics_read(query.frame, self.input_topics())}
        return starts_now([each for each in self._inputs if each.topic in read], self.brokers)

    def _tier_plan(self, queries: Sequence[JobQuery]) -> TierPlan | None:
        """Of each query the inputs of tracked events. StreamError if there are none."""
        if self._tier is None:
            return None
        tracked = {name: given.topic for name, (given, _) in self._frames.items() if given.format == "tracked"}
        inputs: dict[str, dict[str, int]] = {}
        for query in queries:
            numbers = counted_inputs(query.frame, METRIC)
            read = inputs[query.name] = {}
            for name, topic in tracked.items():
                if name in numbers:
                    read.setdefault(topic, numbers[name][0])
        if not any(inputs.values()):
            raise StreamError(f"job {self.name}: tier {self._tier} has nothing to count: no input has format='tracked'")
        return TierPlan(self._tier, inputs)

    def check(self) -> None:
        """All that `run` looks at before it begins: queries, checkpoints, outputs. Nothing is written. Errors as those of `run`."""
        with self._run() as running:
            running.check()

    def stop(self) -> None:
        """Stop at the end of the batch that is being written; from any thread, or a signal handler. Does not wait."""
        self._stop_wanted = True
        if self._running is not None:
            self._running.stop()

    def main(self, arguments: Sequence[str] | None = None) -> None:
        """Run as the program of a file, with `--once` and `--fresh`; ends the process, with code 1 and a line for what has failed."""
        from moldau.streams.program import main

        main(self, arguments)


def _table(path: str, time: str, partition: str, table_format: str) -> TableOutput:
    path = absolute(path)
    return TableOutput(path, _plain_name(path, "table"), time, partition, table_format)


def _plain_name(place: str, otherwise: str) -> str:
    """The last part of a path, or a topic, without what a file's name has not."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", os.path.basename(place.rstrip("/"))) or otherwise
