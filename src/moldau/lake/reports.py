"""Questions that people ask of loaded events, ready to run: three over a table, one over a topic as it is.

    run_report(spark, "/lake/departures", "events-per-hour").show()

Each is one statement of Spark SQL, to be copied and changed: ``spark.sql(sql, events=read_table(spark, path))``. The tables have the common
header (`moldau.tracking.header`); times are UTC.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moldau.tracking.counts import WINDOW_MS, Count

_WINDOW_S = WINDOW_MS // 1000


@dataclass(frozen=True, slots=True)
class ReportJob:
    """A question and its SQL."""

    name: str
    question: str
    sql: str


EVENTS_PER_HOUR = ReportJob(
    "events-per-hour",
    "How many events did each service send in each hour, and from how many hosts?",
    """SELECT event_day, event_hour, header.datacenter AS datacenter, header.service AS service,
       count(*) AS events, count(DISTINCT header.host) AS hosts
FROM {events}
GROUP BY ALL
ORDER BY event_day, event_hour, datacenter, service""",
)

ARRIVAL_LATENCY = ReportJob(
    "arrival-latency",
    "How long after it happened did an event reach the log, by service? In ms; negative where a host's clock is ahead.",
    """SELECT header.datacenter AS datacenter, header.service AS service, count(*) AS events,
       percentile_approx(unix_millis(_timestamp) - unix_millis(header.time), 0.5) AS median_ms,
       percentile_approx(unix_millis(_timestamp) - unix_millis(header.time), 0.99) AS p99_ms,
       max(unix_millis(_timestamp) - unix_millis(header.time)) AS greatest_ms
FROM {events}
GROUP BY ALL
ORDER BY datacenter, service""",
)

COMPLETENESS = ReportJob(
    "completeness",
    "Is each ten minutes all there, and nothing twice? The checksum is the audit's; `produced` is the count of the producers.",
    f"""WITH arrived AS (
  SELECT timestamp_seconds(floor(unix_millis(header.time) / {WINDOW_MS}) * {_WINDOW_S}) AS window_start,
         count(*) AS events, count(DISTINCT header.guid) AS distinct_events,
         CAST(pmod(sum(CAST(xxhash64(header.guid) AS DECIMAL(38, 0))), 18446744073709551616) AS STRING) AS checksum
  FROM {{events}} GROUP BY ALL)
SELECT window_start, coalesce(arrived.events, 0) AS events, coalesce(distinct_events, 0) AS distinct_events, arrived.checksum,
       produced.events AS produced,
       CASE WHEN produced.events IS NULL THEN 'no producer counts'
            WHEN coalesce(arrived.events, 0) < produced.events THEN 'missing'
            WHEN arrived.events > produced.events THEN 'doubled'
            WHEN arrived.checksum <> produced.checksum THEN 'not the same'
            ELSE 'complete' END AS verdict
FROM arrived FULL JOIN {{produced}} AS produced USING (window_start)
ORDER BY window_start""",
)

REPORTS: Mapping[str, ReportJob] = {each.name: each for each in (EVENTS_PER_HOUR, ARRIVAL_LATENCY, COMPLETENESS)}

RAW_TOPIC = ReportJob(
    "raw-topic",
    "What is in a topic now, read from the brokers, without any table: records and bytes by partition and schema.",
    """SELECT partition,
       CASE WHEN hex(substring(value, 1, 1)) = '00' THEN CAST(conv(hex(substring(value, 2, 4)), 16, 10) AS INT) END AS schema_id,
       count(*) AS records, sum(length(value)) AS bytes, min(offset) AS first_offset, max(offset) AS last_offset,
       min(timestamp) AS oldest, max(timestamp) AS newest
FROM {events}
GROUP BY ALL
ORDER BY partition, schema_id""",
)


def run_report(spark: Any, table: str, name: str, *, bootstrap_servers: str | None = None, topic: str | None = None) -> Any:
    """The answer as a DataFrame. ValueError for a report that is not there; TableError without a table.

    For ``completeness`` the producers' counts of `topic` come from the audit topic of `bootstrap_servers`; else no window has a verdict.
    Events in the dead letters are missing from the table, and so from this report; the audit counts them as arrived.
    """
    from moldau.lake.table import read_table

    job = REPORTS.get(name)
    if job is None:
        raise ValueError(f"there is no report {name!r}; there are {', '.join(REPORTS)}")
    frames = {"events": read_table(spark, table)}
    if job is COMPLETENESS:
        counts = {} if bootstrap_servers is None or topic is None else _produced(bootstrap_servers, topic)
        rows = [(start_ms / 1000, count.count, str(count.checksum)) for start_ms, count in sorted(counts.items())]
        produced = spark.createDataFrame(rows, "seconds double, events bigint, checksum string")
        frames["produced"] = produced.selectExpr("timestamp_seconds(seconds) AS window_start", "events", "checksum")
    return spark.sql(job.sql, **frames)


def top_values(spark: Any, table: str, column: str, limit: int = 10) -> Any:
    """The most frequent values of a column (``header.host``, ``carrier``), how many events have them, and their share in percent."""
    from moldau.lake.table import read_table

    quoted = ".".join(f"`{part.replace('`', '``')}`" for part in column.split("."))
    sql = f"""SELECT {quoted} AS value, count(*) AS events, round(100 * count(*) / sum(count(*)) OVER (), 2) AS percent
FROM {{events}} GROUP BY ALL ORDER BY events DESC, value LIMIT {int(limit)}"""
    return spark.sql(sql, events=read_table(spark, table))


def raw_report(spark: Any, bootstrap_servers: str, topic: str) -> Any:
    """RAW_TOPIC of a topic: an ad hoc question over raw events."""
    options = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": topic}
    columns = "value binary, partition int, offset bigint, timestamp timestamp"
    frames = {"events": spark.read.format("moldau").schema(columns).options(**options).load()}
    return spark.sql(RAW_TOPIC.sql, **frames)


def _produced(bootstrap_servers: str, topic: str) -> dict[int, Count]:
    """The producers' own counts, by window."""
    from moldau.audit.follow import read_audit
    from moldau.client.cluster import Cluster
    from moldau.tracking.audit_record import PRODUCER_TIER

    with Cluster(bootstrap_servers, client_id="moldau-report") as cluster:
        found = read_audit(cluster, wanted=lambda key, _value: key == topic.encode())
    windows: dict[int, Count] = {}
    for key, entry in found.counts.get(PRODUCER_TIER, {}).items():
        if key.topic == topic:
            windows[key.window_start_ms] = windows.get(key.window_start_ms, Count()) + entry.count
    return windows
