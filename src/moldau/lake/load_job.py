"""What a load moves where: the job that its driver and its tasks share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from moldau.lake.data_files import DAY
from moldau.lake.options import ISOLATION_LEVELS

RECORD_COLUMNS = [("_partition", pa.int32()), ("_offset", pa.int64()), ("_timestamp", pa.timestamp("us", tz="UTC"))]
"""What a table keeps of the record beside the event: where it stood, and its time."""
DEAD_LETTER_COLUMNS = [("key", pa.binary()), ("value", pa.binary()), ("error", pa.string()), ("topic", pa.string()), *RECORD_COLUMNS]
ACTIONS = "target string, path string, day string, size bigint, rows bigint, statistics string"
"""What a task reports of each file; `target` is EVENTS or DEAD_LETTERS."""
EVENTS, DEAD_LETTERS = "events", "dead letters"


@dataclass(frozen=True, slots=True)
class LoadJob:
    """What goes where. Two jobs with different names load the same topic independently, also into the same table."""

    name: str
    bootstrap: str
    topic: str
    table: str
    """Path of the Delta table; made if it is missing."""
    dead_letters: str
    """Path of the Delta table of what could not be parsed."""
    columns: Any
    """Arrow schema of the events' fields."""
    headers: Mapping[str, Any] = field(default_factory=dict)
    """Headers that are kept, each in a column named ``_NAME``, with the Arrow types their text is read as."""
    refuse_unknown: bool = True
    """Whether an event with a field that has no column is a dead letter; otherwise such fields are dropped."""
    reject_header: str | None = None
    """A header by which a producer says that a record is no event, and why: such a record is a dead letter, and the text its error."""
    group_id: str | None = None
    """The consumer group that the offsets are committed to after the table's commit, so that its lag is that of the load; None: to none."""
    isolation_level: str = "read_committed"
    """Whether records of aborted transactions are left out, and those of open ones waited for; or ``read_uncommitted``."""
    writers: int | None = None
    """Tasks that write, each at least one file a day; None: as many as Spark runs at once."""

    def __post_init__(self) -> None:
        reserved = {DAY, *(name for name, _ in RECORD_COLUMNS), *(f"_{name}" for name in self.headers)}
        clashing = sorted(reserved & set(self.columns.names))
        if self.isolation_level not in ISOLATION_LEVELS:
            raise ValueError(f"load {self.name}: the isolation level is read_committed or read_uncommitted, not {self.isolation_level!r}")
        if clashing:
            raise ValueError(f"load {self.name}: events have a field {clashing[0]!r}, which is the name of a column of the table itself")

    @property
    def needs_headers(self) -> bool:
        """Whether the records' headers are read at all."""
        return bool(self.headers) or self.reject_header is not None

    @property
    def file_schema(self) -> Any:
        """Columns of the data files."""
        kept = [(f"_{name}", kind) for name, kind in self.headers.items()]
        return pa.schema([*self.columns, *RECORD_COLUMNS, *kept])

    @property
    def table_schema(self) -> Any:
        """Columns of the table: those of its files, and the day."""
        return self.file_schema.append(pa.field(DAY, pa.date32()))
