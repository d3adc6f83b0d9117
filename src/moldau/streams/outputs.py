"""Where the rows of a batch go: what outputs have in common, and the output to a topic."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from moldau.lake.reading.cluster_log import ClusterLog
from moldau.lake.reading.offsets import OptionError
from moldau.lake.writing.encoding import ColumnError
from moldau.lake.writing.frames import steps_of, write_frame
from moldau.lake.writing.steps import WriteSteps
from moldau.streams.avro_values import AvroValues, arrow_columns, with_value
from moldau.streams.errors import StreamError
from moldau.streams.exact_json import quoted
from moldau.streams.generations import name_in
from moldau.streams.points import reached

if TYPE_CHECKING:
    from moldau.streams.checkpoints import PlannedBatch


@dataclass(frozen=True, slots=True)
class BatchNumber:
    """Which batch it is: what is written under it is written once."""

    job: str
    query: str
    run: str
    """Of the checkpoint, in which the numbers count."""
    number: int
    planned: "PlannedBatch"

    @property
    def writer(self) -> str:
        """Who writes: a name for each query of a job."""
        return f"{self.job}/{self.query}"


class Output(Protocol):
    """Takes the batches of one query."""

    @property
    def name(self) -> str:
        """What it is called in a job: the query is named after its first output."""

    @property
    def place(self) -> str:
        """Where it is, for people and for the job's shape."""

    def of_generation(self, number: int) -> "Output":
        """The one that this generation of the job writes to (`moldau.streams.generations`)."""

    def check(self, frame: Any) -> None:
        """Before the job starts: it can take the rows of this DataFrame. StreamError; nothing is made."""

    def write(self, rows: Any, batch: BatchNumber) -> None:
        """Write the rows of a batch, unless they are there already."""


_KEY, _VALUE, _HEADERS, _EVENT = "key", "value", "headers", "event"
_TEXT = ("string", "binary")
_OF_THE_JOB = ("topic", "transactional", "queryname", "queryrun", "batchid")
"""Options by which each batch is known and where it goes: with one that stays the same the next batch would be taken for written."""


@dataclass(frozen=True, slots=True)
class TopicOutput:
    """Rows as records of a topic, each batch in one transaction of a decision (`moldau.lake.writing`)."""

    topic: str
    brokers: str
    key: tuple[str, ...] = ()
    """Columns of the key: one as text (or bytes), several as a JSON object; none: no key."""
    value: str | None = None
    """The column with the value, of text or bytes; None: all columns as a JSON object."""
    headers: str | None = None
    """A column of headers, as the source has them."""
    options: tuple[tuple[str, str], ...] = ()
    """Others of the sink; not those that are the job's own."""
    avro: AvroValues | None = None
    """How all columns are the value in Avro; None: not at all."""

    @property
    def name(self) -> str:
        """The topic's."""
        return self.topic

    @property
    def place(self) -> str:
        """Where it is."""
        return f"topic {self.topic}"

    def of_generation(self, number: int) -> "TopicOutput":
        """The topic of a generation."""
        return replace(self, topic=name_in(self.topic, number))

    def check(self, frame: Any) -> None:
        """The topic is there, and the columns are; the sink has these options."""
        from pyspark.sql import functions

        with ClusterLog(self.brokers, "moldau-stream") as source:
            if self.topic not in source.topics([self.topic]):
                raise StreamError(f"there is no topic {self.topic} at {self.brokers}: moldau topic create {self.topic} makes it")
        fields = self._fields(frame)
        if self.avro is None:
            records = self._records(frame)
        else:
            self.avro.check(arrow_columns(frame, fields))
            records = frame.select(*self._beside(frame), functions.lit(b"").alias(_VALUE))
        try:
            self._steps(records, self.topic, run="", number=0)
        except (OptionError, ColumnError) as error:
            raise StreamError(f"topic {self.topic}: {error}") from error

    def write(self, rows: Any, batch: BatchNumber) -> None:
        """In a transaction of the sink; a batch that is decided is not written again."""
        records = self._records(rows)
        write_frame(records, self._steps(records, f"{batch.writer}/{self.topic}", batch.run, batch.number))
        reached("topic written")

    def _steps(self, records: Any, query: str, run: str, number: int) -> WriteSteps:
        """How records with these columns are written. OptionError, ColumnError."""
        for name, _ in self.options:
            if name.lower() in _OF_THE_JOB:
                raise OptionError(name, "is the job's own")
        ours = {
            "kafka.bootstrap.servers": self.brokers,
            "topic": self.topic,
            "transactional": "true",
            "queryname": query,
            "queryrun": run,
            "batchid": str(number),
        }
        return steps_of(records.schema, {**ours, **{name.lower(): str(value) for name, value in self.options}})

    def _fields(self, frame: Any) -> tuple[str, ...]:
        """The columns of a value that is made of all. StreamError for a column that is named and is not there, or of another type."""
        kinds = dict(frame.dtypes)
        for name in (*self.key, *(each for each in (self.value, self.headers) if each is not None)):
            if name not in kinds:
                raise StreamError(f"topic {self.topic}: there is no column {name}; there are {', '.join(kinds)}")
        if self.value is not None and kinds[self.value] not in _TEXT:
            raise StreamError(f"topic {self.topic}: the value's column {self.value} is {kinds[self.value]}, not string or binary")
        return tuple(name for name in kinds if name != self.headers)

    def _records(self, frame: Any) -> Any:
        """The columns that the sink takes. StreamError."""
        from pyspark.sql import functions

        fields, beside = [quoted(name) for name in self._fields(frame)], self._beside(frame)
        if self.value is not None:
            return frame.select(*beside, functions.col(quoted(self.value)).alias(_VALUE))
        if self.avro is None:
            return frame.select(*beside, functions.to_json(functions.struct(*fields), {"ignoreNullFields": "false"}).alias(_VALUE))
        event = functions.struct(*fields).alias(_EVENT)
        return with_value(frame.select(*beside, event), self.avro, _EVENT, _VALUE)

    def _beside(self, frame: Any) -> list[Any]:
        """Those beside the value."""
        from pyspark.sql import functions

        columns = [key_text(frame, self.key).alias(_KEY)] if self.key else []
        if self.headers is not None:
            columns.append(functions.col(quoted(self.headers)).alias(_HEADERS))
        return columns


def key_text(frame: Any, key: Sequence[str]) -> Any:
    """The key of a record: one column as text (or bytes), several as a JSON object. Columns that exist."""
    from pyspark.sql import functions

    if len(key) > 1:
        return functions.to_json(functions.struct(*map(quoted, key)))
    (name,) = key
    kind, column = frame.schema[name].dataType.simpleString(), functions.col(quoted(name))
    if kind in _TEXT:
        return column
    return functions.to_json(functions.struct(column)) if kind.startswith("struct") else column.cast("string")


def columns_of(key: str | Sequence[str] | None) -> tuple[str, ...]:
    """One name or several."""
    return () if key is None else (key,) if isinstance(key, str) else tuple(key)
