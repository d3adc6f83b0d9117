"""What the demonstration found: the audit's report, the independent proof by Spark SQL, the ready reports, times of the steps."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from moldau.audit.verdicts import Report as AuditReport
from moldau.audit.verdicts import Verdict
from moldau.demo.crash import CrashReport
from moldau.demo.inputs import LINE_FIELD, BadInputLine, EventInput
from moldau.demo.tiers import LAKE_TIER
from moldau.lake.reports import COMPLETENESS, EVENTS_PER_HOUR, RAW_TOPIC, raw_report, run_report
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
    different = (f"count(DISTINCT {LINE_FIELD})", "count(DISTINCT header.guid)")
    sums = (f"CAST({GUID_SUM} AS STRING)", f"CAST({content} AS STRING)")
    rows, lines, guids, checksum, found = flat.selectExpr("count(*)", *different, *sums).first()
    expected = _input_frame(spark, flat.drop("header"), source, fields, without)
    expected_rows, wanted = expected.selectExpr("count(*)", f"CAST({content} AS STRING)").first()
    return Proof(rows, lines, guids, int(checksum or 0), int(found or 0), expected_rows, int(wanted or 0))


def _filled(field: Mapping[str, Any]) -> str:
    """A column with its default where it is empty: rows that were loaded before the schema had the field have nothing there."""
    name, default = field["name"], field.get("default")
    return f"coalesce(`{name}`, '{default}') AS `{name}`" if isinstance(default, str) else f"`{name}`"


def _input_frame(spark: Any, like: Any, source: EventInput, fields: list[Mapping[str, Any]], without: tuple[int, ...]) -> Any:
    """The events of the input with the columns of `like`, read by a task for each host."""
    defaults = {field["name"]: field.get("default") for field in fields}
    hosts = len(source.hosts)

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(like_schema)
        for batch in batches:
            for host in batch.column(0).to_pylist():
                rows: list[dict[str, Any]] = []
                for item in source.events(host):
                    if isinstance(item, BadInputLine) or item.line in without:
                        continue
                    rows.append({**defaults, **item.fields, LINE_FIELD: item.line, "time_ms": item.time_ms})
                    if len(rows) == _BATCH:
                        yield pa.RecordBatch.from_pylist(rows, schema)
                        rows = []
                yield pa.RecordBatch.from_pylist(rows, schema)

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
        """Nothing missing, nothing doubled, nothing changed, by the audit and by the proof."""
        return self.audit.complete and self.verdict is Verdict.COMPLETE and self.sound


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


def ask_all(spark: Any, table: str, bootstrap: str, topic: str, produced: Mapping[int, Count], *, flights: bool) -> list[ReportQuestion]:
    """The answers; `produced` are the counts of the producers, by window. What Spark raises."""
    from moldau.lake.table import read_table

    answers = []
    if flights:
        answers.append(_asked("Which airlines depart latest?", _AIRLINES, spark.sql(_AIRLINES, events=read_table(spark, table))))
    answers.append(_asked(EVENTS_PER_HOUR.question, EVENTS_PER_HOUR.sql, run_report(spark, table, EVENTS_PER_HOUR.name)))
    answers.append(_asked("How fast did each host publish?", _PACE, spark.sql(_PACE, events=read_table(spark, table))))
    windows = spark.sql(COMPLETENESS.sql, events=read_table(spark, table), produced=_produced_frame(spark, produced))
    answers.append(_asked(COMPLETENESS.question, COMPLETENESS.sql, spark.sql(_VERDICTS, windows=windows)))
    answers.append(_asked(RAW_TOPIC.question, RAW_TOPIC.sql, raw_report(spark, bootstrap, topic)))
    return answers


def _produced_frame(spark: Any, produced: Mapping[int, Count]) -> Any:
    """What `run_report` would read from the audit topic once more."""
    import pyarrow as pa

    columns = {
        "window_start": pa.array(list(produced), pa.timestamp("ms", tz="UTC")),
        "events": pa.array([count.count for count in produced.values()], pa.int64()),
        "checksum": pa.array([str(count.checksum) for count in produced.values()], pa.string()),
    }
    return spark.createDataFrame(pa.table(columns))


def _asked(title: str, sql: str, answer: Any) -> ReportQuestion:
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
