"""The commands speak to Apache Kafka as they speak to Moldau, and say the same: one dialogue, held with each, compared line by line.

Broker's own words (after the error's code and subject), topic ids and times are the only differences allowed.
"""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from support.console import Console, ConsoleInside, Done
from support.kafka import NODE_ID, KafkaProcess
from support.server import ServerProcess

pytestmark = pytest.mark.system

ELR_SETTING = "min.insync.replicas"
"""Kafka from 4.1 on sets it for the whole cluster when it is formatted (KIP-966)."""

SPREAD_LIMIT_S = 60.0

BAD_LINES = "a:1\nb:2\nno separator\nc:3\n"

DIALOGUE: list[tuple[list[str], str]] = [
    (["topic", "create", "t", "--partitions", "3", "-c", "retention.ms=-1"], ""),
    (["topic", "create", "t"], ""),
    (["topic", "create", "t", "--if-not-exists"], ""),
    (["topic", "create", "a b"], ""),
    (["topic", "create", "n", "-c", "no.such=1"], ""),
    (["topic", "create", "n", "-r", "3"], ""),
    (["topic", "list", "--json"], ""),
    (["produce", "t", "--key-separator", ":"], BAD_LINES),
    (["produce", "t", "--key-separator", ":", "--on-error", "skip", "-z", "gzip", "-H", "h=1"], BAD_LINES),
    (["produce", "t", "--partition", "0", "--acks", "0", "-z", "lz4"], "x\ny\nz\n"),
    (["produce", "t", "--partition", "0", "--acks", "1", "-z", "snappy"], "s\n"),
    (["produce", "t", "--partition", "0", "--idempotent", "-z", "zstd"], "zstd\n"),
    (["topic", "describe", "t", "--json"], ""),
    (["consume", "t", "--until-end", "--format", "json"], ""),
    (["consume", "t", "--until-end", "--partition", "0", "--from", "-2"], ""),
    (["consume", "t", "--until-end", "--partition", "0", "--from", "2013-01-01", "--max", "2", "--format", "%p %o %k %s"], ""),
    (["consume", "t", "--partition", "0", "--from", "50"], ""),
    (["consume", "nowhere"], ""),
    (["topic", "alter", "t", "--partitions", "4", "-c", "segment.bytes=1048576", "--delete-config", "retention.ms"], ""),
    (["topic", "alter", "t", "--partitions", "2"], ""),
    (["config", "describe", "--topic", "t", "--json"], ""),
    (["config", "alter", "--topic", "t", "-s", "retention.ms=soon"], ""),
    (["config", "alter", "--topic", "t", "-s", "retention.ms=1000", "--dry-run"], ""),
    (["config", "alter", "--broker", "default", "-s", "log.retention.ms=100000000"], ""),
    (["config", "describe", "--topic", "t", "--json"], ""),
    (["config", "alter", "--broker", "default", "-d", "log.retention.ms"], ""),
    (["config", "describe", "--broker", "77"], ""),
    (["topic", "trim", "t", "--before", "2", "--partition", "0"], ""),
    (["consume", "t", "--until-end", "--partition", "0", "--from", "0"], ""),
    (["topic", "trim", "t", "--before", "99", "--partition", "0"], ""),
    (["group", "describe", "g"], ""),
    (["group", "reset", "g", "--to", "end"], ""),
    (["group", "reset", "g", "--topic", "t", "--to", "3", "--json"], ""),
    (["group", "list", "--json"], ""),
    (["group", "reset", "g", "--topic", "t", "--to", "3", "--json", "--execute"], ""),
    (["group", "list", "--json"], ""),
    (["group", "list", "--state", "Stable", "--json"], ""),
    (["group", "describe", "g", "--json"], ""),
    (["consume", "t", "--group", "g", "--until-end", "--partition", "0", "--max", "1"], ""),
    (["group", "describe", "g", "--json"], ""),
    (["group", "reset", "g", "--shift-by", "-1", "--export"], ""),
    (["group", "reset", "g", "--topic", "t", "--partition", "1", "--to", "@1", "--execute"], ""),
    (["group", "reset", "g", "--from-file", "-", "--execute"], "t,0,2\nt,2,99\n"),
    (["group", "describe", "g", "--json"], ""),
    (["group", "delete", "g", "--topic", "t", "--partition", "1"], ""),
    (["group", "delete", "g", "--topic", "t", "--partition", "1"], ""),
    (["group", "describe", "g", "--json"], ""),
    (["group", "delete", "g"], ""),
    (["group", "delete", "g"], ""),
    (["group", "delete", "g", "--if-exists"], ""),
    (["group", "list", "--json"], ""),
    (["topic", "delete", "t"], ""),
    (["topic", "delete", "t"], ""),
    (["topic", "delete", "t", "--if-exists"], ""),
    (["topic", "list", "--json"], ""),
]


def told(done: Done, node_id: int) -> list[Any]:
    """Exit code and output without what may differ."""
    lines = [_without_differences(line, node_id) for line in done.lines]
    errors = [re.sub(r"^(Error: [A-Z_]+: [a-z]+ [^:]+): .*", r"\1", line) for line in done.err.splitlines()]
    return [done.code, sorted(lines, key=json.dumps), errors]


def _without_differences(line: str, node_id: int) -> Any:
    if line[:1] not in ("{", "["):
        return line
    parsed = [entry for entry in _entries(json.loads(line)) if entry.get("name") != ELR_SETTING]
    for entry in parsed:
        entry.pop("id", None)
        entry.pop("timestamp", None)
        entry.pop("coordinator", None)
        entry.get("configs", {}).pop(ELR_SETTING, None)
        for partition in entry.get("partitions", []) if "configs" in entry else []:
            assert partition.pop("bytes") is not None
            for name in ("leader", "replicas", "isr"):
                assert partition.pop(name) in (node_id, [node_id])
    return parsed


def _entries(parsed: Any) -> list[dict[str, Any]]:
    return parsed if isinstance(parsed, list) else [parsed]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """What the commands say to Moldau."""
    settings = {"auto.create.topics.enable": "false", "num.partitions": "1"}
    with ServerProcess(tmp_path_factory.mktemp("moldau"), settings=settings) as server:
        ours = ConsoleInside(server.bootstrap)
        return [told(ours(*arguments, text=text), 0) for arguments, text in DIALOGUE]


def said_to_kafka(theirs: Console, arguments: list[str], text: str, expected: list[Any]) -> list[Any]:
    """Kafka's brokers take up a change a moment after its controller has answered, so what only looks may look again."""
    deadline = time.monotonic() + SPREAD_LIMIT_S
    while True:
        said = told(theirs(*arguments, text=text), NODE_ID)
        if said == expected or arguments[1] not in ("describe", "list") or time.monotonic() > deadline:
            return said


@pytest.mark.parametrize("version", [pytest.param("3.9.1", marks=pytest.mark.long), "4.3.0"])
def test_the_same_dialogue(version: str, said: list[list[Any]], tmp_path: Path) -> None:
    differences = []
    with KafkaProcess(version, tmp_path / "kafka", {"auto.create.topics.enable": "false"}) as kafka:
        theirs = ConsoleInside(kafka.bootstrap)
        for (arguments, text), ours in zip(DIALOGUE, said, strict=True):
            other = said_to_kafka(theirs, arguments, text, ours)
            if other != ours:
                differences.append((arguments, ours, other))
    assert not differences
