"""Topics and settings are made, shown, changed and removed from the command line; every refusal is one line that names the topic."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.console import Console, ConsoleInside
from support.server import ServerProcess

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def moldau_console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    data: Path = tmp_path_factory.mktemp("data")
    with ServerProcess(data, settings={"num.partitions": "2", "auto.create.topics.enable": "false"}) as server:
        yield ConsoleInside(server.bootstrap)


def test_a_topic_from_its_creation_to_its_end(moldau_console: Console) -> None:
    moldau = moldau_console
    assert moldau.ok("topic", "create", "life", "--partitions", "3", "--config", "retention.ms=-1").lines == [
        "created topic life with 3 partitions"
    ]
    (listed,) = [topic for topic in moldau.ok("topic", "list", "--json").json if topic["name"] == "life"]
    assert (listed["partitions"], listed["replication_factor"], listed["internal"]) == (3, 1, False)

    (described,) = moldau.ok("topic", "describe", "life", "--json").json
    assert described["id"] == listed["id"]
    assert described["configs"] == {"retention.ms": "-1"}
    assert [(p["partition"], p["leader"], p["replicas"], p["isr"]) for p in described["partitions"]] == [(n, 0, [0], [0]) for n in range(3)]
    assert [(p["start_offset"], p["end_offset"], p["bytes"]) for p in described["partitions"]] == [(0, 0, 0)] * 3

    moldau.ok("topic", "alter", "life", "--partitions", "5", "--config", "segment.bytes=1048576", "--delete-config", "retention.ms")
    (described,) = moldau.ok("topic", "describe", "life", "--json").json
    assert (len(described["partitions"]), described["configs"]) == (5, {"segment.bytes": "1048576"})

    assert moldau.ok("topic", "delete", "life").lines == ["deleted topic life"]
    assert "life" not in [topic["name"] for topic in moldau.ok("topic", "list", "--json").json]


def test_tables_are_plain_columns_in_a_pipe(moldau_console: Console) -> None:
    moldau_console.ok("topic", "create", "plain")
    done = moldau_console.ok("topic", "list")
    assert done.lines[0].split() == ["TOPIC", "PARTITIONS", "REPLICAS"]
    assert ["plain", "2", "1"] in [line.split() for line in done.lines]
    described = moldau_console.ok("topic", "describe", "plain")
    assert described.lines[0].endswith("0 offsets in 2 partitions, 0 B")
    assert described.lines[1].startswith("id: ")
    assert described.lines[2] == "settings: all defaults"
    assert described.lines[3].split() == ["PARTITION", "LEADER", "REPLICAS", "ISR", "START", "END", "SIZE"]


def test_options_make_creation_and_deletion_repeatable(moldau_console: Console) -> None:
    moldau = moldau_console
    moldau.ok("topic", "create", "twice")
    refused = moldau("topic", "create", "twice")
    assert refused.code == 1
    assert refused.err.startswith("Error: TOPIC_ALREADY_EXISTS: topic twice: ")
    assert moldau.ok("topic", "create", "twice", "--if-not-exists").lines == ["topic twice exists already"]
    moldau.ok("topic", "delete", "twice")
    gone = moldau("topic", "delete", "twice")
    assert gone.code == 1
    assert gone.err.startswith("Error: UNKNOWN_TOPIC_OR_PARTITION: topic twice: ")
    assert moldau.ok("topic", "delete", "twice", "--if-exists").lines == ["there is no topic twice"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["topic", "create", "a b"], "INVALID_TOPIC_EXCEPTION: topic a b: "),
        (["topic", "create", "c", "--config", "retention.mss=1"], "INVALID_CONFIG: topic c: "),
        (["topic", "create", "c", "--config", "retention.ms=soon"], "INVALID_CONFIG: topic c: "),
        (["topic", "create", "c", "--replication-factor", "2"], "INVALID_REPLICATION_FACTOR: topic c: "),
        (["topic", "describe", "missing"], "UNKNOWN_TOPIC_OR_PARTITION: topic missing: "),
        (["topic", "alter", "missing", "--partitions", "2"], "UNKNOWN_TOPIC_OR_PARTITION: topic missing: "),
        (["topic", "trim", "missing", "--before", "end"], "UNKNOWN_TOPIC_OR_PARTITION: topic missing: "),
        (["config", "describe", "--topic", "missing"], "UNKNOWN_TOPIC_OR_PARTITION: topic missing: "),
        (["config", "describe", "--broker", "7"], "BROKER_NOT_AVAILABLE: broker 7: "),
        (["consume", "missing"], "UNKNOWN_TOPIC_OR_PARTITION: topic missing: "),
        (["produce", "missing"], "UNKNOWN_TOPIC_OR_PARTITION: topic missing: "),
    ],
)
def test_refusals_are_one_line_with_the_code(moldau_console: Console, arguments: list[str], error: str) -> None:
    done = moldau_console(*arguments)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"Error: {error}")
    assert done.err.count("\n") == 1


def test_partitions_only_grow(moldau_console: Console) -> None:
    moldau_console.ok("topic", "create", "grows", "--partitions", "3")
    done = moldau_console("topic", "alter", "grows", "--partitions", "2")
    assert done.code == 1
    assert done.err.startswith("Error: INVALID_PARTITIONS: topic grows: ")


def test_settings_of_a_topic(moldau_console: Console) -> None:
    moldau = moldau_console
    moldau.ok("topic", "create", "settings")
    assert moldau.ok("config", "describe", "--topic", "settings").lines == ["topic settings: all settings are defaults (--all shows them)"]
    assert moldau.ok("config", "alter", "--topic", "settings", "--set", "retention.ms=1", "--dry-run").lines == [
        "topic settings: would be altered"
    ]
    assert moldau.ok("config", "describe", "--topic", "settings", "--json").json == []
    moldau.ok("config", "alter", "--topic", "settings", "-s", "retention.ms=86400000", "-s", "max.message.bytes=2000000")
    (first, second) = moldau.ok("config", "describe", "--topic", "settings", "--json").json
    assert (first["name"], first["value"], first["source"]) == ("max.message.bytes", "2000000", "dynamic topic")
    assert second["name"] == "retention.ms"
    refused = moldau("config", "alter", "--topic", "settings", "-s", "segment.ms=5", "-s", "retention.ms=never")
    assert refused.code == 1
    assert refused.err.startswith("Error: INVALID_CONFIG: topic settings: ")
    moldau.ok("config", "alter", "--topic", "settings", "-d", "retention.ms", "-d", "max.message.bytes")
    assert moldau.ok("config", "describe", "--topic", "settings", "--json").json == [], "nothing of the refused change was taken"
    defaults = moldau.ok("config", "describe", "--topic", "settings", "--all", "--json", "--help-texts").json
    assert {entry["name"]: entry["value"] for entry in defaults}["retention.ms"] == "604800000"
    assert all(entry["documentation"] for entry in defaults)


@pytest.mark.parametrize(
    ("command", "resource", "name"),
    [
        (["config", "alter", "--topic", "slips", "--delete"], "topic slips", "retention.ms"),
        (["topic", "alter", "slips", "--delete-config"], "topic slips", "retention.ms"),
        (["config", "alter", "--broker", "0", "--delete"], "broker 0", "log.retention.ms"),
        (["config", "alter", "--broker", "default", "--delete"], "defaults of all brokers", "log.retention.ms"),
    ],
)
def test_a_setting_that_does_not_exist_cannot_be_deleted(moldau_console: Console, command: list[str], resource: str, name: str) -> None:
    moldau_console.ok("topic", "create", "slips", "--if-not-exists")
    done = moldau_console(*command, name + "s")
    assert (done.code, done.out) == (1, "")
    assert done.err == f"Error: nothing was altered: {resource} has no setting {name}s, did you mean '{name}'?\n"
    moldau_console.ok(*command, name)


def test_settings_of_brokers(moldau_console: Console) -> None:
    moldau = moldau_console
    static = {entry["name"]: entry for entry in moldau.ok("config", "describe", "--broker", "0", "--json").json}
    assert static["num.partitions"]["value"] == "2"
    assert static["num.partitions"]["source"] == "static broker"
    moldau.ok("config", "alter", "--broker", "default", "--set", "log.retention.ms=1000000")
    assert [(e["name"], e["value"]) for e in moldau.ok("config", "describe", "--broker", "default", "--json").json] == [
        ("log.retention.ms", "1000000")
    ]
    moldau.ok("topic", "create", "heir")
    heir = {entry["name"]: entry["value"] for entry in moldau.ok("config", "describe", "--topic", "heir", "--all", "--json").json}
    assert heir["retention.ms"] == "1000000"
    moldau.ok("config", "alter", "--broker", "default", "--delete", "log.retention.ms")
    refused = moldau("config", "alter", "--broker", "0", "--set", "log.dirs=/elsewhere")
    assert refused.code == 1
    assert refused.err.startswith("Error: INVALID_")
    assert "log.dirs" in refused.err


def test_trim_deletes_the_oldest_records(moldau_console: Console) -> None:
    moldau = moldau_console
    moldau.ok("topic", "create", "trimmed", "--partitions", "2")
    for partition in ("0", "1"):
        moldau.ok("produce", "trimmed", "--partition", partition, text="a\nb\nc\n")
    assert moldau.ok("topic", "trim", "trimmed", "--before", "2", "--partition", "1").lines == ["partition trimmed-1 begins at offset 2"]
    (described,) = moldau.ok("topic", "describe", "trimmed", "--json").json
    assert [(p["start_offset"], p["end_offset"]) for p in described["partitions"]] == [(0, 3), (2, 3)]
    assert moldau.ok("consume", "trimmed", "--partition", "1", "--until-end").lines == ["c"]
    moldau.ok("topic", "trim", "trimmed", "--before", "end")
    assert moldau.ok("consume", "trimmed", "--until-end").lines == []
    wrong = moldau("topic", "trim", "trimmed", "--before", "end", "--partition", "2")
    assert (wrong.code, "has partitions 0 to 1, not 2" in wrong.err) == (2, True)


def test_trim_beyond_the_end_of_a_log_is_refused_with_its_range(moldau_console: Console) -> None:
    """Claim: the line names partition, offset and what there is, and no partition was trimmed, those that reach so far neither."""
    moldau = moldau_console
    moldau.ok("topic", "create", "short", "--partitions", "2")
    moldau.ok("produce", "short", "--partition", "0", text="a\nb\nc\n")
    moldau.ok("produce", "short", "--partition", "1", text="a\n")
    beyond = moldau("topic", "trim", "short", "--before", "2")
    there = "the log, which begins at offset 0 and ends at offset 1"
    said = f"Error: OFFSET_OUT_OF_RANGE: partition short-1: offset 2 is after the end of {there}; nothing was trimmed\n"
    assert (beyond.code, beyond.out, beyond.err) == (1, "", said)
    (described,) = moldau.ok("topic", "describe", "short", "--json").json
    assert [(p["start_offset"], p["end_offset"]) for p in described["partitions"]] == [(0, 3), (0, 1)]
