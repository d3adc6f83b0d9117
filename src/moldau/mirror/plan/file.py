"""Reading the file of a mirror. docs/mirroring.md is its reference."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from moldau.mirror.audited import audited_topics
from moldau.mirror.naming import Naming
from moldau.mirror.patterns import NamePatterns, Pattern, parse_pattern
from moldau.mirror.plan.start import Start
from moldau.mirror.plan.start_tables import TABLES, read_start
from moldau.mirror.plan.values import COPY_REQUESTS, COPY_SOURCE, Groups, Limits, MirrorPlan, Mode, Partitioning, Source, Sync, Target
from moldau.mirror.selection import NEVER, TopicSelection
from moldau.model.host_port import Address, parse_addresses
from moldau.model.toml_table import Table, parse_document, read_document
from moldau.tracking.audit_record import AUDIT_TOPIC, PRODUCER_TIER

DEFAULT_EXCLUDE: Final = (parse_pattern(".*[-.]internal"),)
"""Topics in which MirrorMaker 2 and Connect keep their state."""

TABLES_BETWEEN: Final = ("topics", "start", "groups", "sync", "limits", "audit")
KEYS_BETWEEN: Final = ("mode", "naming", "partitioning", *TABLES_BETWEEN)
"""What a mirror has beside its name and its clusters."""
_KEYS: Final = (
    *("name", "mode", "naming", "partitioning"),
    *("source", "sources", "target", *TABLES_BETWEEN),
)
_SERVERS: Final = "bootstrap.servers"
_REQUESTS: Final = "max.in.flight.requests.per.connection"
_FETCHERS: Final = "num.replica.fetchers"
_FETCHERS_MAX: Final = 100
_FETCH_BYTES: Final = "max.partition.fetch.bytes"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_TIER: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_CONFIG: Final = re.compile(r"[a-z][a-z0-9.]*")
ROUNDS_OUT_MAX: Final = 5
"""Requests of a partition that an idempotent producer may have waiting for answers."""
_BUFFER_BYTES_MIN: Final = 1024 * 1024
_DAY_MS: Final = 24 * 3_600_000


Servers = tuple[Address, ...]


def read_plan(path: Path) -> MirrorPlan:
    """The plan in a file. PlanFileError names file and line."""
    return _plan(read_document(path))


def parse_plan(text: str, file: str) -> MirrorPlan:
    """The plan that this text is; `file` is its name in messages. PlanFileError."""
    return _plan(parse_document(text, file))


def plan_between(table: Table, name: str, sources: Mapping[str, Servers], target: Servers) -> MirrorPlan:
    """The plan of a mirror between clusters that are known already, by name; the table has the rest, `KEYS_BETWEEN`. PlanFileError."""
    try:
        _parse_name(name)
    except ValueError as error:
        table.fail_here(str(error))
    mode = _mode(table)
    topics = _topics(table.table("topics", required=True))
    if mode is Mode.COPY and len(sources) > 1:
        table.fail("mode", f"a copy has one source, not {', '.join(sources)}")
    start = _start(table, topics, one_source=len(sources) == 1)
    made = tuple(Source(COPY_SOURCE if mode is Mode.COPY else each, servers, start) for each, servers in sources.items())
    return _made(table, name, mode, topics, made, Target(target))


def _plan(root: Table) -> MirrorPlan:
    root.only(*_KEYS)
    mode = _mode(root)
    topics = _topics(root.table("topics", required=True))
    name = root.parsed("name", _parse_name)
    sources = _merge_sources(root, topics) if mode is Mode.MERGE else _copy_source(root, topics)
    return _made(root, name, mode, topics, sources, _target(root.table("target", required=True)))


def _mode(table: Table) -> Mode:
    mode = table.one_of("mode", Mode)
    if mode is Mode.COPY:
        _without(table, "is for merge only: a copy keeps the names and partitions of its source", "naming", "partitioning")
    return mode


def _made(table: Table, name: str, mode: Mode, topics: NamePatterns, sources: tuple[Source, ...], target: Target) -> MirrorPlan:
    plan = MirrorPlan(
        name=name,
        mode=mode,
        sources=sources,
        target=target,
        topics=topics,
        naming=table.choice("naming", Naming.TOPIC),
        partitioning=table.choice("partitioning", Partitioning.SAME),
        groups=_groups(table.table("groups")),
        sync=_sync(table.table("sync")),
        limits=_limits(table.table("limits"), mode),
        audit_tier=_audit_tier(table.table("audit")),
    )
    if plan.audit_tier is not None:
        _check_audited(table.table("audit"), plan)
    return plan


def _check_audited(table: Table, plan: MirrorPlan) -> None:
    if plan.mode is Mode.COPY and plan.selection.selects(AUDIT_TOPIC):
        table.fail("tier", f"its counts cannot be published: [topics] makes {AUDIT_TOPIC} of the target a copy, which takes nothing else")
    try:
        audited_topics(plan)
    except re.error as error:
        table.fail("tier", f"the patterns of [topics] do not go into one, which an auditor needs: {error}")


def _without(table: Table, reason: str, *names: str) -> None:
    for name in names:
        if name in table:
            table.fail(name, reason)


def _parse_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f"a name has 1 to 100 letters, digits, '_' and '-', and begins with a letter or digit, not {text!r}")
    return text


def _copy_source(root: Table, topics: NamePatterns) -> tuple[Source, ...]:
    _without(root, "is for merge only: a copy has one source, in [source]", "sources")
    table = root.table("source", required=True)
    table.only(_SERVERS)
    return (Source(COPY_SOURCE, table.parsed(_SERVERS, _parse_servers), _start(root, topics, one_source=True)),)


def _merge_sources(root: Table, topics: NamePatterns) -> tuple[Source, ...]:
    _without(root, "is for copy only: the sources of a merge have names, as in [sources.east]", "source")
    tables = dict(root.named_tables("sources", ("start",)))
    if not tables:
        root.fail("sources", "is missing; each source is a table with its name, as [sources.east]")
    start = _start(root, topics, one_source=len(tables) == 1)
    return tuple(_merge_source(name, table, topics, start) for name, table in tables.items())


def _merge_source(name: str, table: Table, topics: NamePatterns, start: Start) -> Source:
    table.only(_SERVERS, "start")
    try:
        _parse_name(name)
    except ValueError as error:
        table.fail_here(str(error))
    own = _start(table, topics, one_source=True) if "start" in table else start
    return Source(name, table.parsed(_SERVERS, _parse_servers), own)


def _target(table: Table) -> Target:
    table.only(_SERVERS)
    return Target(table.parsed(_SERVERS, _parse_servers))


def _parse_servers(text: str) -> tuple[Address, ...]:
    return tuple(parse_addresses(text))


def _start(table: Table, topics: NamePatterns, *, one_source: bool) -> Start:
    return read_start(table.table("start", TABLES), TopicSelection(topics).selects, one_source=one_source)


def _topics(table: Table) -> NamePatterns:
    table.only("include", "exclude")
    include = table.list_of("include", _parse_included_topic, None)
    if not include:
        table.fail("include", 'an empty list mirrors no topic; [".*"] is every topic that is not an internal one')
    return NamePatterns(include, table.list_of("exclude", parse_pattern, DEFAULT_EXCLUDE))


def _parse_included_topic(text: str) -> Pattern:
    if text in NEVER:
        raise ValueError(f"topic {text} has the state of one cluster and is never mirrored")
    return parse_pattern(text)


def _groups(table: Table) -> Groups:
    table.only("include", "exclude", "interval.ms")
    default = Groups()
    return Groups(
        NamePatterns(
            table.list_of("include", parse_pattern, default.patterns.include),
            table.list_of("exclude", parse_pattern, default.patterns.exclude),
        ),
        table.integer("interval.ms", default.interval_ms, at_least=100, at_most=_DAY_MS),
    )


def _sync(table: Table) -> Sync:
    table.only("configs", "exclude.configs", "growth", "interval.ms")
    default = Sync()
    return Sync(
        table.boolean("configs", default.configs),
        frozenset(table.list_of("exclude.configs", _parse_config, tuple(sorted(default.exclude_configs)))),
        table.boolean("growth", default.growth),
        table.integer("interval.ms", default.interval_ms, at_least=100, at_most=_DAY_MS),
    )


def _parse_config(text: str) -> str:
    if not _CONFIG.fullmatch(text):
        raise ValueError(f"{text!r} is not the name of a configuration, such as min.insync.replicas")
    return text


def _limits(table: Table, mode: Mode) -> Limits:
    table.only(
        "buffer.bytes", "transaction.bytes", "linger.ms", _FETCHERS, _FETCH_BYTES, _REQUESTS, "retry.backoff.ms", "retry.backoff.max.ms"
    )
    if mode is Mode.COPY:
        _without(table, "is for merge only: a copy has no transactions", "transaction.bytes", "linger.ms")
    default = Limits()
    buffer_bytes = table.integer("buffer.bytes", default.buffer_bytes, at_least=_BUFFER_BYTES_MIN)
    backoff_ms = table.integer("retry.backoff.ms", default.retry_backoff_ms, at_least=1, at_most=_DAY_MS)
    return Limits(
        buffer_bytes=buffer_bytes,
        transaction_bytes=table.integer(
            "transaction.bytes", min(default.transaction_bytes, buffer_bytes), at_least=1, at_most=buffer_bytes
        ),
        linger_ms=table.integer("linger.ms", default.linger_ms, at_least=0, at_most=_DAY_MS),
        fetchers=table.integer(_FETCHERS, default.fetchers, at_least=1, at_most=_FETCHERS_MAX),
        partition_fetch_bytes=table.integer(
            _FETCH_BYTES, min(default.partition_fetch_bytes, buffer_bytes), at_least=1, at_most=buffer_bytes
        ),
        requests_per_connection=(
            table.integer(_REQUESTS, COPY_REQUESTS, at_least=1, at_most=100)
            if mode is Mode.COPY
            else table.integer(_REQUESTS, default.requests_per_connection, at_least=1, at_most=ROUNDS_OUT_MAX)
        ),
        retry_backoff_ms=backoff_ms,
        retry_backoff_max_ms=table.integer(
            "retry.backoff.max.ms", max(default.retry_backoff_max_ms, backoff_ms), at_least=backoff_ms, at_most=_DAY_MS
        ),
    )


def _audit_tier(table: Table) -> str | None:
    table.only("tier")
    return table.parsed("tier", parse_tier) if "tier" in table else None


def parse_tier(text: str) -> str:
    """A tier of the audit. ValueError."""
    if not _TIER.fullmatch(text):
        raise ValueError(f"a tier's name has 1 to 200 letters, digits, '.', '_' and '-', not {text!r}")
    if text == PRODUCER_TIER:
        raise ValueError(f"tier {text} is that of the producers themselves")
    return text
