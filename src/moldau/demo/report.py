"""What the demonstration found: the audit's report, the independent proof by Spark SQL, the ready reports, times of the steps."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime
from itertools import islice
from typing import Any

from moldau.audit.edges import TierEdge
from moldau.audit.verdicts import Report as AuditReport
from moldau.audit.verdicts import Verdict
from moldau.demo.crash import CrashReport
from moldau.demo.inputs import LINE_FIELD, BadInputLine, EventInput
from moldau.demo.stream_job import StreamFigures
from moldau.demo.tiers import LAKE_TIER
from moldau.lake.reports import COMPLETENESS, EVENTS_PER_HOUR, RAW_TOPIC, raw_report
from moldau.tracking.counts import NOTHING, Count

GUID_SUM = "pmod(sum(CAST(xxhash64(header.guid) AS DECIMAL(38, 0))), 18446744073709551616)"
"""The audit's checksum."""
_SUM = "pmod(sum(CAST(xxhash64({columns}) AS DECIMAL(38, 0))), 18446744073709551616)"
_BATCH = 10_000


@dataclass(frozen=True, slots=True)
class Proof:
    """Of the table: its rows, different lines and guids, the checksum of the guids, and one of the lines and all fields.

    `expected_rows` and `expected_content` are of the input as it is read once more, without the planted loss.
    """

    rows: int
    lines: int
    guids: int
    checksum: int
    content: int
    expected_rows: int
    expected_content: int

    @property
    def holds(self) -> bool:
        """Every event of the input once, as it was."""
        return self.rows == self.lines == self.guids == self.expected_rows and self.content == self.expected_content


def prove(spark: Any, table: Any, source: EventInput, without: tuple[int, ...]) -> Proof:
    """`table` is a frame of the loaded table; `without` are lines that it cannot have. What Spark raises."""
    fields = [field for field in source.schemas()[-1]["fields"] if field["name"] in table.columns]
    time = ["unix_millis(header.time) AS time_ms"] if source.timed else []
    flat = table.selectExpr(*(_filled(field) for field in fields), *time, "header")
    content = _SUM.format(columns=", ".join(f"`{name}`" for name in flat.columns if name != "header"))
    expected = _input_frame(spark, flat.drop("header"), source, fields, without)
    with ThreadPoolExecutor(1) as beside:  # it is Python that reads the input, and Java that reads the table
        reading = beside.submit(expected.selectExpr("count(*)", f"CAST({content} AS STRING)").first)
        rows, lines, guids, checksum, found = _sums_of(flat, content)
        expected_rows, wanted = reading.result()
    return Proof(rows, lines, guids, int(checksum or 0), int(found or 0), expected_rows, int(wanted or 0))


def _sums_of(flat: Any, content: str) -> tuple[int, int, int, Any, Any]:
    rows, checksum, found = flat.selectExpr("count(*)", f"CAST({GUID_SUM} AS STRING)", f"CAST({content} AS STRING)").first()
    lines, guids = (  # of two in one query Spark would make three rows of each
        flat.selectExpr(f"count(DISTINCT {name})").first()[0] for name in (LINE_FIELD, "header.guid")
    )
    return rows, lines, guids, checksum, found


def _filled(field: Mapping[str, Any]) -> str:
    """A column with its default where it is empty: rows that were loaded before the schema had the field have nothing there."""
    name, default = field["name"], field.get("default")
    return f"coalesce(`{name}`, '{default}') AS `{name}`" if isinstance(default, str) else f"`{name}`"


def _input_frame(spark: Any, like: Any, source: EventInput, fields: list[Mapping[str, Any]], without: tuple[int, ...]) -> Any:
    """The events of the input with the columns of `like`, read by a task for each host."""
    defaults = [(field["name"], field.get("default")) for field in fields if field["name"] != LINE_FIELD]
    hosts = len(source.hosts)

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(like_schema)
        names = [LINE_FIELD, *(name for name, _ in defaults), "time_ms"]
        types = [schema.field(name).type for name in schema.names]
        for batch in batches:
            for host in batch.column(0).to_pylist():
                events = (item for item in source.events(host) if not isinstance(item, BadInputLine) and item.line not in without)
                while rows := [
                    (item.line, *[item.fields.get(name, default) for name, default in defaults], item.time_ms)
                    for item in islice(events, _BATCH)
                ]:
                    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
                    arrays = [pa.array(columns[name], kind) for name, kind in zip(schema.names, types, strict=True)]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    like_schema = like.schema
    return spark.range(0, hosts, 1, hosts).mapInArrow(read, like_schema)


@dataclass(frozen=True, slots=True)
class ReportStep:
    """One step: how many events went through it, and seconds."""

    name: str
    events: int
    seconds: float

    @property
    def rate(self) -> float | None:
        """Events per second; None for a step that none went through."""
        return self.events / self.seconds if self.events and self.seconds else None


@dataclass(frozen=True, slots=True)
class ReportQuestion:
    """A question, the SQL of it, and the answer as a small table; `more` rows of it are left out."""

    title: str
    sql: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    more: int = 0


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The load's consumer group, and by how many offsets it lagged."""

    group: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of the topic's log on all brokers; bytes and files of the table's newest version, and its number."""

    log_bytes: int
    lake_bytes: int
    lake_files: int
    table_version: int


@dataclass(frozen=True, slots=True)
class DemoReport:
    """The whole account. Counts are of this moment's input, log and table, whichever run put them there."""

    input: str
    topic: str
    table: str
    read: int
    """Lines of the input, good and bad."""
    bad_lines: int
    bad_shown: Sequence[tuple[int, str]]
    audit: AuditReport
    proof: Proof
    dead_letters: int
    """Different records in the dead-letter table."""
    planted_lines: tuple[int, ...]
    """Lines whose event was counted and never sent, on purpose."""
    sent: int
    """Lines that this run published, and rows that it loaded; 0 when all was there."""
    loaded: int
    sent_bytes: int
    sizes: Sizes
    steps: Sequence[ReportStep]
    questions: Sequence[ReportQuestion]
    lag: GroupLag
    picture: str
    brokers: int = 1
    crash: CrashReport | None = None
    """Of the broker that was killed in this run; None if there is but one broker, or this run published nothing."""
    edges: Sequence[TierEdge] = ()
    """Of the tree of tiers."""
    stream: StreamFigures | None = None
    """Of the stream job; None with other events than the flights."""

    @property
    def lake(self) -> Count:
        """What the audit has counted in the lake."""
        return sum((pair.lower for pair in self.audit.pairs if pair.lower_tier == LAKE_TIER), NOTHING)

    @property
    def checksums_agree(self) -> bool:
        """Whether Spark SQL's checksum over the table is the audit's; dead letters are no tracked events, and in neither."""
        return (self.proof.rows, self.proof.checksum) == (self.lake.count, self.lake.checksum)

    @property
    def verdict(self) -> Verdict:
        """The worst of all windows and tiers."""
        return min((pair.verdict for pair in self.audit.pairs), key=list(Verdict).index, default=Verdict.COMPLETE)

    @property
    def sound(self) -> bool:
        """Whether the table holds each event of the input once, unchanged, also by the audit, and the dead letters each bad line."""
        return self.proof.holds and self.checksums_agree and self.dead_letters == self.bad_lines

    @property
    def complete(self) -> bool:
        """Nothing missing, nothing doubled, nothing changed, by the audit, by the proof, and in what the stream job has made."""
        return self.audit.complete and self.verdict is Verdict.COMPLETE and self.sound and (self.stream is None or self.stream.holds)


_ROWS_SHOWN = 6
_AIRLINES = """SELECT carrier, count(*) AS departures, round(avg(dep_delay), 1) AS mean_delay_min,
       count_if(status = 'LATE') AS late_since_july, count_if(status = 'CANCELLED') AS cancelled_since_july
FROM {events} GROUP BY carrier ORDER BY mean_delay_min DESC LIMIT 5"""
_PACE = """SELECT header.host AS host, count(*) AS events, date_trunc('second', min(_timestamp)) AS first_sent,
       date_trunc('second', max(_timestamp)) AS last_sent,
       CAST(count(*) * 1000 / greatest(1, unix_millis(max(_timestamp)) - unix_millis(min(_timestamp))) AS BIGINT) AS events_per_s
FROM {events} GROUP BY ALL ORDER BY host"""
"""Not the report of arrival latencies: that would say how old the input is, whose events happened years before they are published."""
_VERDICTS = (
    "SELECT verdict, count(*) AS windows, sum(produced) AS produced, sum(events) AS arrived FROM {windows} GROUP BY ALL ORDER BY verdict"
)


def ask_all(
    spark: Any, table: Any, bootstrap: str, topic: str, produced: Mapping[int, Count], *, flights: bool, late: Collection[int]
) -> list[ReportQuestion]:
    """The answers, two questions at a time; `table` is a frame of the loaded table, `produced` are the counts of the producers, by window,
    `late` the lines that were held back. What Spark raises."""
    in_time = table.filter(~table[LINE_FIELD].isin(list(late))) if late else table

    def completeness() -> Any:
        windows = spark.sql(COMPLETENESS.sql, events=table, produced=_produced_frame(spark, produced))
        return spark.sql(_VERDICTS, windows=windows)

    questions: list[tuple[str, str, Callable[[], Any]]] = [
        (EVENTS_PER_HOUR.question, EVENTS_PER_HOUR.sql, lambda: spark.sql(EVENTS_PER_HOUR.sql, events=table)),
        ("How fast did each host publish what it did not hold back?", _PACE, lambda: spark.sql(_PACE, events=in_time)),
        (COMPLETENESS.question, COMPLETENESS.sql, completeness),
        (RAW_TOPIC.question, RAW_TOPIC.sql, lambda: raw_report(spark, bootstrap, topic)),
    ]
    if flights:
        questions.insert(0, ("Which airlines depart latest?", _AIRLINES, lambda: spark.sql(_AIRLINES, events=table)))
    with ThreadPoolExecutor(2) as askers:  # Spark plans a question on one thread, and waits long for the processes that read the topic
        asked = [askers.submit(_asked, *question) for question in reversed(questions)]
        return [each.result() for each in reversed(asked)]


def _produced_frame(spark: Any, produced: Mapping[int, Count]) -> Any:
    """What `run_report` would read from the audit topic once more."""
    import pyarrow as pa

    columns = {
        "window_start": pa.array(list(produced), pa.timestamp("ms", tz="UTC")),
        "events": pa.array([count.count for count in produced.values()], pa.int64()),
        "checksum": pa.array([str(count.checksum) for count in produced.values()], pa.string()),
    }
    return spark.createDataFrame(pa.table(columns))


def _asked(title: str, sql: str, ask: Callable[[], Any]) -> ReportQuestion:
    answer = ask()
    rows = answer.collect()
    return ReportQuestion(title, sql, answer.columns, [_cells(row) for row in rows[:_ROWS_SHOWN]], max(0, len(rows) - _ROWS_SHOWN))


def _cells(row: Sequence[Any]) -> list[Any]:
    """As JSON has it."""
    return [_cell(value) for value in row]


def _cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").removesuffix(".000")
    if isinstance(value, date):
        return value.isoformat()
    return value if value is None or isinstance(value, (int, float, str)) else float(value)
