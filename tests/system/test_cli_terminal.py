"""Commands at a real terminal of 80 columns: no line of a table is longer, verdicts have colours, and slips of names get a suggestion."""

import os
import pty
import re
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.tracking.audit_record import AUDIT_TOPIC, AuditRecord, ensure_audit_topic, new_guid
from moldau.tracking.clock import now_ms
from moldau.tracking.counts import WINDOW_MS, Count, CountKey, window_start
from support.console import LIMIT_S, MOLDAU, Console, ConsoleInside
from support.server import ServerProcess

pytestmark = pytest.mark.system

COLUMNS = 80
STYLE = re.compile(r"\x1b\[[\d;]*m")
TOPIC = "departures-of-all-airports-of-new-york-by-carrier-and-tail-number-v2"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def moldau(data: Path) -> Iterator[Console]:
    with ServerProcess(data, settings={"auto.create.topics.enable": "false"}) as server:
        console = ConsoleInside(server.bootstrap)
        console.ok("topic", "create", TOPIC, "--partitions", "3", "--config", "retention.ms=31536000000")
        console.ok("produce", TOPIC, text="".join(f"{number}\n" for number in range(10_000)))
        console.ok("consume", TOPIC, "--until-end", "--group", "billing-of-all-departures-by-carrier")
        yield console


def at_terminal(moldau: Console, *arguments: str) -> str:
    """What the command writes to a terminal of so many columns."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (60, COLUMNS))
    environment = {name: value for name, value in moldau.environment.items() if name not in ("NO_COLOR", "COLUMNS")} | {"TERM": "xterm"}
    with subprocess.Popen([MOLDAU, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        written = b""
        try:
            while part := os.read(ours, 65_536):
                written += part
        except OSError:  # the other side is closed: all is read
            pass
        process.wait(LIMIT_S)
    os.close(ours)
    return written.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    ("arguments", "whole"),
    [
        (["topic", "list", "--internal"], [TOPIC, "50"]),
        (["topic", "describe", TOPIC], ["PARTITION", "SIZE"]),
        (["group", "list"], ["Empty"]),
        (["group", "describe", "billing-of-all-departures-by-carrier"], ["COMMITTED", "LAG"]),
        (["group", "reset", "billing-of-all-departures-by-carrier", "--to", "earliest"], ["BEFORE", "AFTER"]),
        (["config", "describe", "--topic", TOPIC], ["31536000000"]),
        (["config", "describe", "--broker", "0", "--all"], ["replica.high.watermark.checkpoint.interval.ms"]),
    ],
    ids=lambda value: " ".join(value[:2]),
)
def test_a_table_is_no_wider_than_its_terminal(moldau: Console, arguments: list[str], whole: list[str]) -> None:
    """Claim: every line of the table fits, and what may not be broken stands in one of them as it is."""
    lines = STYLE.sub("", at_terminal(moldau, *arguments)).splitlines()
    rule = next(number for number, line in enumerate(lines) if line.startswith("──"))
    table = lines[rule - 1 :]
    assert [line for line in table if len(line) > COLUMNS] == []
    assert all(any(word in line for line in table) for word in whole), table


def test_the_audit_tells_two_instances_of_a_host_apart(moldau: Console) -> None:
    """Claim: no two rows of a report look alike, and its notes are there."""
    ensure_audit_topic(moldau.environment["MOLDAU_BOOTSTRAP"])
    for instance in ("0" * 16, "0" * 15 + "1"):
        key = CountKey("departures", window_start(now_ms()) + WINDOW_MS, "ewr", "departures", "ewr-web-frontend-1", instance)
        record = AuditRecord("counts", new_guid(), now_ms(), "producer", key, Count(10, 100, 1, now_ms(), now_ms()))
        moldau.ok("produce", AUDIT_TOPIC, "--partition", "0", text=record.to_bytes().decode() + "\n")
    lines = STYLE.sub(
        "", at_terminal(moldau, "audit", "report", "--tiers", "producer,local", "--only", "local=.*", "--windows")
    ).splitlines()
    assert [line for line in lines if len(line) > COLUMNS] == []
    rows = [line for line in lines if line.startswith("departures ")]
    assert len(rows) == len(set(rows)) == 3
    assert "published nothing yet" in " ".join(lines)


def test_a_verdict_is_green_at_a_terminal_and_plain_in_a_pipe(moldau: Console, data: Path) -> None:
    assert at_terminal(moldau, "log", "verify", str(data)).startswith("\x1b[32mOK\x1b[0m: ")
    assert moldau.ok("log", "verify", str(data)).out.startswith("OK: ")


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["group", "describe", "biling-of-all-departures-by-carrier"], "billing-of-all-departures-by-carrier"),
        (["group", "delete", "biling-of-all-departures-by-carrier"], "billing-of-all-departures-by-carrier"),
        (["topic", "delete", TOPIC + "x"], TOPIC),
        (["config", "describe", "--topic", TOPIC + "x"], TOPIC),
        (["produce", TOPIC + "x"], TOPIC),
        (["group", "reset", "new", "--topic", TOPIC + "x", "--to", "0"], TOPIC),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_slips_of_names_are_told_with_the_brokers_nearest(moldau: Console, arguments: list[str], meant: str) -> None:
    done = moldau(*arguments)
    assert done.code == 1
    assert done.err.endswith(f", did you mean '{meant}'?\n")
