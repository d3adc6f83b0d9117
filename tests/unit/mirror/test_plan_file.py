"""The file of a mirror: what it says as values, and for each mistake the line and what is allowed."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.mirror.naming import Naming
from moldau.mirror.plan.file import parse_plan, read_plan
from moldau.mirror.plan.start import FromOffset, FromTime, LogBound
from moldau.mirror.plan.values import Groups, Limits, MirrorPlan, Mode, Partitioning, Sync
from moldau.model.host_port import Address
from moldau.model.identity import Offset, TimestampMs
from moldau.model.toml_table import PlanFileError

COPY = """\
name = "standby"
mode = "copy"
[source]
bootstrap.servers = "a:1,b:2"
[target]
bootstrap.servers = "c:3"
[topics]
include = ["orders", "web-.*"]
"""
MERGE = """\
name = "all"
mode = "merge"
[sources.east]
bootstrap.servers = "a:1"
[sources.west]
bootstrap.servers = "b:1"
[target]
bootstrap.servers = "c:1"
[topics]
include = [".*"]
"""


def error_of(text: str) -> str:
    with pytest.raises(PlanFileError) as caught:
        parse_plan(text, "m.toml")
    return str(caught.value)


def test_a_file_with_what_it_must_have_has_the_defaults() -> None:
    plan = parse_plan(COPY, "m.toml")
    assert (plan.name, plan.mode) == ("standby", Mode.COPY)
    (source,) = plan.sources
    assert (source.name, source.bootstrap_servers) == ("source", (Address("a", 1), Address("b", 2)))
    assert source.start.of("orders", 3) is LogBound.EARLIEST
    assert plan.target.bootstrap_servers == (Address("c", 3),)
    assert [pattern.pattern for pattern in plan.topics.include] == ["orders", "web-.*"]
    assert (plan.naming, plan.partitioning) == (Naming.TOPIC, Partitioning.SAME)
    assert (plan.groups, plan.sync, plan.limits, plan.audit_tier) == (Groups(), Sync(), Limits(requests_per_connection=4), None)
    topics = ["orders", "web-clicks", "web-clicks.internal", "web-mm2-internal", "other", "_schemas"]
    assert plan.selection.of(topics) == ("orders", "web-clicks")


def test_a_file_with_everything() -> None:
    plan = parse_plan(
        MERGE
        + """\
exclude = ["test-.*"]
[start]
default = "latest"
[start.topics."web.clicks"]
timestamp = "2026-11-28T07:30:00.0015+01:00"
[sources.west.start]
default = 2026-11-28T06:30:00Z
[sources.west.start.topics.orders]
offset = 100
partitions = {0 = 5, 1 = "latest"}
[sources.west.start.topics."web.clicks"]
partitions = {7 = 1}
[groups]
include = ["billing-.*"]
exclude = []
interval.ms = 30000
[sync]
configs = false
exclude.configs = ["retention.ms"]
growth = false
[limits]
buffer.bytes = 8388608
transaction.bytes = 1048576
linger.ms = 0
num.replica.fetchers = 7
max.partition.fetch.bytes = 2097152
max.in.flight.requests.per.connection = 1
retry.backoff.ms = 20000
[audit]
tier = "aggregate"
""",
        "m.toml",
    )
    east, west = plan.sources
    assert [east.start.of(topic, 0) for topic in ("orders", "web.clicks")] == [LogBound.LATEST, FromTime(TimestampMs(1795847400002))]
    assert [west.start.of("orders", partition) for partition in range(3)] == [
        FromOffset(Offset(5)),
        LogBound.LATEST,
        FromOffset(Offset(100)),
    ]
    half_past_six = FromTime(TimestampMs(1795847400000))
    assert [west.start.of("web.clicks", partition) for partition in (7, 8)] == [FromOffset(Offset(1)), half_past_six]
    assert west.start.of("other", 0) == half_past_six
    assert (plan.groups.patterns.matches("billing-eu"), plan.groups.patterns.matches("mirror.x"), plan.groups.interval_ms) == (
        True,
        False,
        30000,
    )
    assert plan.sync == Sync(False, frozenset({"retention.ms"}), False)
    assert plan.limits == Limits(8388608, 1048576, 0, 1, 20000, 20000, 7, 2097152)
    assert plan.audit_tier == "aggregate"


def test_names_with_dots_may_be_written_in_each_of_tomls_ways() -> None:
    """Claim: dotted, in quotes, and as a table of their own they are the same name."""
    dotted = 'bootstrap.servers = "a:1,b:2"'
    for other in ('"bootstrap.servers" = "a:1,b:2"', 'bootstrap = {servers = "a:1,b:2"}', '[source.bootstrap]\nservers = "a:1,b:2"'):
        assert parse_plan(COPY.replace(dotted, other), "m.toml") == parse_plan(COPY, "m.toml")


def test_a_smaller_buffer_makes_smaller_transactions() -> None:
    assert parse_plan(MERGE + "[limits]\nbuffer.bytes = 2000000", "m.toml").limits.transaction_bytes == 2_000_000


SYNTAX = [
    ("name = \n", "m.toml:1: not TOML: Invalid value"),
    (COPY + "[topics]\n", "m.toml:9: not TOML: Cannot declare ('topics',) twice"),
    (COPY + 'x = "\n', "m.toml:9: not TOML: Illegal character '\\n'"),
    (COPY + "x = [1,\n\n", "m.toml:10: not TOML: Invalid value"),
    (COPY + "x = " + "1" * 5000, "m.toml:1: not TOML that can be read: Exceeds the limit"),
    (COPY + "x = " + "[" * 50000, "m.toml:1: not TOML that can be read: "),
]


@pytest.mark.parametrize(("text", "message"), SYNTAX)
def test_what_is_not_toml_has_its_line(text: str, message: str) -> None:
    assert error_of(text).startswith(message)


NAME_RULE = "a name has 1 to 100 letters, digits, '_' and '-', and begins with a letter or digit"
TIME_RULE = "a time with date, seconds and zone (RFC 3339), such as 2026-11-28T06:30:00Z or 2026-11-28T07:30:00+01:00"
BOUND_OR_TIME = f'must be "earliest", "latest" or {TIME_RULE}'
OFFSET_RULE = 'must be an offset from 0 on, "earliest" or "latest"'
KEYS = "name, mode, naming, partitioning, source, sources, target, topics, start, groups, sync, limits, audit"
LIMITS = (
    "buffer.bytes, transaction.bytes, linger.ms, num.replica.fetchers, max.partition.fetch.bytes, max.in.flight.requests.per.connection, "
    "retry.backoff.ms, retry.backoff.max.ms"
)
DAY = "86,400,000"

ROOT_ERRORS = [
    (COPY, 'name = "standby"\n', "", "1: name: is missing; it is a text"),
    (COPY, 'name = "standby"', "name = 1", "1: name: must be a text, not 1"),
    (COPY, '"standby"', '"a.b"', f"1: name: {NAME_RULE}, not 'a.b'"),
    (COPY, '"standby"', '"_b"', f"1: name: {NAME_RULE}, not '_b'"),
    (COPY, 'mode = "copy"\n', "", '1: mode: is missing; it is "copy" or "merge"'),
    (COPY, '"copy"', '"cpoy"', '2: mode: must be "copy" or "merge", not \'cpoy\''),
    (COPY, '"copy"', "true", '2: mode: must be "copy" or "merge", not true'),
    (COPY, "[source]", 'nmae = "x"\n[source]', f"3: nmae: not known, did you mean 'name'?; there are {KEYS}"),
    (COPY, "[topics]", "[topic]", f"7: topic: not known, did you mean 'topics'?; there are {KEYS}"),
    (COPY, "[source]", "[[limits]]\n[source]", "3: limits: must be a table, not a list"),
    (COPY, "[source]", 'naming = "topic"\n[source]', "3: naming: is for merge only: a copy keeps the names and partitions of its source"),
    (
        COPY,
        "[source]",
        'partitioning = "key"\n[source]',
        "3: partitioning: is for merge only: a copy keeps the names and partitions of its source",
    ),
    (COPY, "[source]", "[sources.a]\n[source]", "3: sources: is for merge only: a copy has one source, in [source]"),
    (MERGE, "[target]", "[source]\n[target]", "7: source: is for copy only: the sources of a merge have names, as in [sources.east]"),
    (MERGE, "[sources.east]", 'naming = "sources"\n[sources.east]', '3: naming: must be "topic" or "source.topic", not \'sources\''),
    (MERGE, "[sources.east]", "partitioning = 1\n[sources.east]", '3: partitioning: must be "same" or "key" or "round-robin", not 1'),
]
CLUSTER_ERRORS = [
    (COPY, '[source]\nbootstrap.servers = "a:1,b:2"\n', "", "1: source: is missing; it is a table"),
    (COPY, 'bootstrap.servers = "a:1,b:2"\n', "", "3: [source] bootstrap.servers: is missing; it is a text"),
    (COPY, '"a:1,b:2"', '["a:1"]', "4: [source] bootstrap.servers: must be a text, not a list"),
    (COPY, '"a:1,b:2"', '"a"', "4: [source] bootstrap.servers: 'a' has no port (HOST:PORT)"),
    (COPY, '"a:1,b:2"', '""', "4: [source] bootstrap.servers: no broker is named (HOST:PORT)"),
    (COPY, "[target]", 'sasl.mechanism = "PLAIN"\n[target]', "5: [source] sasl.mechanism: not known; there are bootstrap.servers"),
    (COPY, "[target]", "start = {}\n[target]", "5: [source] start: not known; there are bootstrap.servers"),
    (COPY, "[target]", '"bootstrap.servers" = "x:1"\n[target]', "5: [source] bootstrap.servers comes twice, in quotes and without"),
    (COPY, '[target]\nbootstrap.servers = "c:3"', "", "1: target: is missing; it is a table"),
    (COPY, '"c:3"', '"c:3"\nacks = 1', "7: [target] acks: not known; there are bootstrap.servers"),
    (MERGE, "[sources.west]", '[sources."west.1"]', f"5: [sources.west.1]: {NAME_RULE}, not 'west.1'"),
    (MERGE, "[sources.west]", "[sources]\nwest = 1\n[other]", f"7: other: not known; there are {KEYS}"),
    (MERGE, "[sources.west]\nbootstrap.servers", "[sources]\nwest = 1\n#", "6: [sources] west: must be a table, not 1"),
    (MERGE, "sources.west", "sources.west.bootstrap", "6: [sources.west] bootstrap.bootstrap.servers: not known, "),
]
TOPIC_ERRORS = [
    (COPY, '[topics]\ninclude = ["orders", "web-.*"]\n', "", "1: topics: is missing; it is a table"),
    (COPY, 'include = ["orders", "web-.*"]', "", "7: [topics] include: is missing; it is a list"),
    (COPY, '["orders", "web-.*"]', '"orders"', "8: [topics] include: must be a list, not 'orders'"),
    (
        COPY,
        '["orders", "web-.*"]',
        "[]",
        '8: [topics] include: an empty list mirrors no topic; [".*"] is every topic that is not an internal one',
    ),
    (
        COPY,
        '"web-.*"',
        '\n"ok",\n"we[b"',
        "10: [topics] include: 'we[b' is not a regular expression: unterminated character set at position 2",
    ),
    (
        COPY,
        '"web-.*"',
        '\n"*"',
        "9: [topics] include: '*' is not a regular expression: nothing to repeat at position 0; every name is '.*'",
    ),
    (COPY, '"web-.*"', "\n7", "9: [topics] include: must be a list of texts, not of 7"),
    (COPY, "include = ", "[[topics.include]]\nx = ", "8: [topics] include: must be a list of texts, not of a table"),
    (COPY, '"web-.*"', '\n""', "9: [topics] include: an empty pattern matches no name"),
    (
        COPY,
        '"web-.*"',
        '"__consumer_offsets"',
        "8: [topics] include: topic __consumer_offsets has the state of one cluster and is never mirrored",
    ),
    (
        COPY,
        '"web-.*"]',
        '"a"]\nexclude = [\n"a{2,1}"]',
        "10: [topics] exclude: 'a{2,1}' is not a regular expression: min repeat greater than max repeat at position 2",
    ),
    (COPY, '"web-.*"]', '"a"]\nexcludes = []', "9: [topics] excludes: not known, did you mean 'exclude'?; there are include, exclude"),
]
OTHER_ERRORS = [
    ("[groups]\ninclude = [1]", "10: [groups] include: must be a list of texts, not of 1"),
    ('[groups]\ninclude = []\nexclude = [\n"("]', "12: [groups] exclude: '(' is not a regular expression: missing )"),
    ("[groups]\ninterval.ms = 5", f"10: [groups] interval.ms: must be from 100 to {DAY}, not 5"),
    ("[groups]\ninterval = 5", "10: [groups] interval: not known, did you mean 'interval.ms'?; there are include, exclude, interval.ms"),
    ('[sync]\nconfigs = "yes"', "10: [sync] configs: must be true or false, not 'yes'"),
    ("[sync]\ngrowth = 1", "10: [sync] growth: must be true or false, not 1"),
    ('[sync]\nexclude.configs = ["Retention"]', "10: [sync] exclude.configs: 'Retention' is not the name of a configuration, such as"),
    ("[sync]\nacls = true", "10: [sync] acls: not known; there are configs, exclude.configs, growth"),
    ("[limits]\nbuffer.bytes = 5", "10: [limits] buffer.bytes: must be from 1,048,576 to 9,223,372,036,854,775,807, not 5"),
    ("[limits]\nbuffer.bytes = true", "10: [limits] buffer.bytes: must be an integer, not true"),
    ("[limits]\nbuffer.bytes = 1e9", "10: [limits] buffer.bytes: must be an integer, not 1000000000.0"),
    ("[limits]\nbuffer.bytes = 2026-11-28", "10: [limits] buffer.bytes: must be an integer, not a date or time"),
    ("[limits]\ntransaction.bytes = 5", "10: [limits] transaction.bytes: is for merge only: a copy has no transactions"),
    ("[limits]\nlinger.ms = 5", "10: [limits] linger.ms: is for merge only: a copy has no transactions"),
    (
        "[limits]\nmax.in.flight.requests.per.connection = 0",
        "10: [limits] max.in.flight.requests.per.connection: must be from 1 to 100, not 0",
    ),
    ("[limits]\nnum.replica.fetchers = 0", "10: [limits] num.replica.fetchers: must be from 1 to 100, not 0"),
    (
        "[limits]\nbuffer.bytes = 2000000\nmax.partition.fetch.bytes = 2000001",
        "11: [limits] max.partition.fetch.bytes: must be from 1 to 2,000,000, not 2,000,001",
    ),
    ("[limits]\nretry.backoff.ms = 0", f"10: [limits] retry.backoff.ms: must be from 1 to {DAY}, not 0"),
    ("[limits]\nretry.backoff.ms = 50\nretry.backoff.max.ms = 49", f"11: [limits] retry.backoff.max.ms: must be from 50 to {DAY}, not 49"),
    ("[limits]\nbufer.bytes = 5", f"10: [limits] bufer.bytes: not known, did you mean 'buffer.bytes'?; there are {LIMITS}"),
    ("[limits.bufer]", f"9: [limits] bufer: not known; there are {LIMITS}"),
    ('[audit]\ntier = "a b"', "10: [audit] tier: a tier's name has 1 to 200 letters, digits, '.', '_' and '-', not 'a b'"),
    ('[audit]\ntier = "producer"', "10: [audit] tier: tier producer is that of the producers themselves"),
    ('audit = "lake"', "9: [topics] audit: not known; there are include, exclude"),
]
IN_TOPIC = "offset, timestamp, partitions; the name of a topic with dots needs quotes"
START_ERRORS = [
    ('[start]\ndefault = "now"', f"10: [start] default: {BOUND_OR_TIME}, not 'now'"),
    ("[start]\ndefault = 5", f"10: [start] default: {BOUND_OR_TIME}, not 5"),
    ("[start]\ndefault = 2026-11-28T00:00:00", f"10: [start] default: {BOUND_OR_TIME}, not 2026-11-28 00:00:00"),
    ("[start]\ndefault = 2026-11-28", f"10: [start] default: {BOUND_OR_TIME}, not a date or time"),
    ('[start]\ndefault = "2026-02-30T00:00:00Z"', f"10: [start] default: {BOUND_OR_TIME}, not '2026-02-30T00:00:00Z'"),
    ("[start]\ndefault = 1969-12-31T23:59:59Z", '10: [start] default: 1969-12-31 23:59:59+00:00 is before 1970: "earliest"'),
    ("[start]\noffset = 5", "10: [start] offset: not known; there are default, topics"),
    ("[start.topics]\norders = 5", "10: [start.topics] orders: must be a table, not 5"),
    ("[start]\ntopics = 5", "10: [start] topics: must be a table, not 5"),
    ("[start.topics.orders]\noffset = -1", f"10: [start.topics.orders] offset: {OFFSET_RULE}, not -1"),
    ('[start.topics.orders]\noffset = "first"', f"10: [start.topics.orders] offset: {OFFSET_RULE}, not 'first'"),
    ("[start.topics.orders]\noffset = true", f"10: [start.topics.orders] offset: {OFFSET_RULE}, not true"),
    ('[start.topics.orders]\ntimestamp = "latest"', f"10: [start.topics.orders] timestamp: must be {TIME_RULE}, not 'latest'"),
    ("[start.topics.orders]\noffset = 1\ntimestamp = 2026-11-28T00:00:00Z", "11: [start.topics.orders] timestamp: excludes offset"),
    (
        "[start.topics.orders]\npartitions = [5, 7]",
        "10: [start.topics.orders] partitions: must be a table of partitions and offsets, {0 = 5, 1 = 7}, not a list",
    ),
    (
        "[start.topics.orders.partitions]\n0 = 5\n01 = 7",
        "11: [start.topics.orders] partitions: a partition is a number from 0 to 2,147,483,647, not '01'",
    ),
    ("[start.topics.orders.partitions]\n0 = 5\n1 = -7", f"11: [start.topics.orders] partitions: {OFFSET_RULE}, not -7"),
    (
        "[start.topics.orders]\noffest = 5",
        f"10: [start.topics.orders] offest: not known, did you mean 'offset'?; there are {IN_TOPIC}",
    ),
    (
        "[start.topics.web.clicks]\noffset = 5",
        f"10: [start.topics.web] clicks.offset: not known; there are {IN_TOPIC}",
    ),
    ('[start.topics."web/x"]\noffset = 5', "9: [start.topics.web/x]: no topic has this name; a name has 1 to 249 letters"),
    ("[start.topics.ordres]\noffset = 5", "9: [start.topics.ordres]: topics.include and topics.exclude do not select this topic"),
]
SEVERAL_SOURCES = "offsets are those of one source, and there are several: use [sources.NAME.start]"
MERGE_ERRORS = [
    ("[start.topics.orders]\noffset = 5", f"12: [start.topics.orders] offset: {SEVERAL_SOURCES}"),
    ("[start.topics.orders]\npartitions = {0 = 5}", f"12: [start.topics.orders] partitions: {SEVERAL_SOURCES}"),
    ("[sources.west.start]\ndefault = 0", f"12: [sources.west.start] default: {BOUND_OR_TIME}, not 0"),
    (
        "[limits]\nbuffer.bytes = 2000000\ntransaction.bytes = 2000001",
        "13: [limits] transaction.bytes: must be from 1 to 2,000,000, not 2,000,001",
    ),
]
CASES = [(base.replace(old, new), message) for base, old, new, message in [*ROOT_ERRORS, *CLUSTER_ERRORS, *TOPIC_ERRORS]]
CASES += [(COPY + more, message) for more, message in [*OTHER_ERRORS, *START_ERRORS]]
CASES += [(MERGE + more, message) for more, message in MERGE_ERRORS]


@pytest.mark.parametrize(("text", "message"), CASES)
def test_each_mistake_has_its_line_and_says_what_is_allowed(text: str, message: str) -> None:
    assert error_of(text).startswith(f"m.toml:{message}")


def test_a_merge_needs_a_source() -> None:
    text = re.sub(r"\[sources.*?(?=\[target)", "", MERGE, flags=re.DOTALL)
    assert error_of(text) == "m.toml:1: sources: is missing; each source is a table with its name, as [sources.east]"


def test_offsets_are_allowed_where_a_merge_has_one_source() -> None:
    text = re.sub(r"\[sources.west.*?(?=\[target)", "", MERGE, flags=re.DOTALL)
    (source,) = parse_plan(text + "[start.topics.orders]\noffset = 5", "m.toml").sources
    assert source.start.of("orders", 0) == FromOffset(Offset(5))


def test_lines_that_end_as_in_windows_are_counted_the_same(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_bytes(COPY.replace('"c:3"', "5").replace("\n", "\r\n").encode())
    with pytest.raises(PlanFileError, match=rf"^{re.escape(str(path))}:6: \[target\] bootstrap.servers: must be a text, not 5$"):
        read_plan(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    with pytest.raises(PlanFileError, match=rf"^{re.escape(str(path))}: No such file or directory$"):
        read_plan(path)
    path.write_bytes(COPY.encode() + b"# \xff\n")
    with pytest.raises(PlanFileError, match=rf"^{re.escape(str(path))}:9: not UTF-8: invalid start byte$"):
        read_plan(path)
    path.write_text(COPY)
    assert read_plan(path) == parse_plan(COPY, "m.toml")


LINES = COPY.splitlines() + MERGE.splitlines() + [line for more, _ in [*OTHER_ERRORS, *START_ERRORS] for line in more.splitlines()]


def outcome(text: str) -> MirrorPlan | str:
    try:
        return parse_plan(text, "m.toml")
    except PlanFileError as error:
        return str(error)


@given(st.lists(st.sampled_from(LINES), max_size=14), st.sampled_from([COPY, MERGE, ""]))
def test_whatever_stands_in_a_file_it_is_a_plan_or_an_error_with_a_line(lines: list[str], base: str) -> None:
    found = outcome(base + "\n".join(lines))
    assert isinstance(found, MirrorPlan) or re.match(r"m\.toml:\d+: ", found)
