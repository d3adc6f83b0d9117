"""The programs in `examples/` run by themselves against a broker, and print what a plain Python model makes of their input."""

import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from moldau.testing.broker import Broker
from support.pages import ROOT

pytestmark = [pytest.mark.system, pytest.mark.spark]

EXAMPLES = ROOT / "examples"
LIMIT_S = 300
Record = dict[str, Any]


def run(broker: Broker, name: str, directory: Path) -> list[str]:
    """The lines that an example prints."""
    command = [sys.executable, str(EXAMPLES / name), "--bootstrap", broker.bootstrap_servers, "--directory", str(directory)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def inputs(monkeypatch: pytest.MonkeyPatch, module: str, function: str) -> Any:
    """What an example writes to its topics."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return getattr(__import__(module), function)()


def records(written: list[tuple[str, str]]) -> list[Record]:
    """The values, with their times."""
    return [{**(each := json.loads(value)), "at": datetime.fromisoformat(each["at"])} for _, value in written]


def test_sessions_of_an_access_log(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each session of each visitor once, with its length and its pages."""
    requests = records(inputs(monkeypatch, "sessions_of_an_access_log", "access_log"))
    expected = []
    for visitor in {each["visitor"] for each in requests} - {"monitoring"}:
        times = [each["at"] for each in requests if each["visitor"] == visitor]
        begins = [n for n, at in enumerate(times) if n == 0 or (at - times[n - 1]).total_seconds() > 1800]
        for begin, end in zip(begins, [*begins[1:], len(times)], strict=True):
            expected.append((visitor, times[begin], (times[end - 1] - times[begin]).total_seconds(), end - begin))
    rows = [json.loads(line) for line in run(broker, "sessions_of_an_access_log.py", tmp_path)]
    found = [(row["visitor"], datetime.fromisoformat(row["window"]["start"]), row["seconds"], row["pages"]) for row in rows]
    assert sorted(found) == sorted(expected)
    assert len(found) == 18


def test_fraud_like_join(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each payment within five minutes of a login from another country, once for each such login."""
    logins, payments = map(records, inputs(monkeypatch, "fraud_like_join", "logins_and_payments"))
    expected = [
        (login["account"], login["country"], paid["country"], paid["amount"], paid["at"])
        for login in logins
        for paid in payments
        if login["account"] == paid["account"]
        and 0 <= (paid["at"] - login["at"]).total_seconds() <= 300
        and login["country"] != paid["country"]
    ]
    rows = [json.loads(line) for line in run(broker, "fraud_like_join.py", tmp_path)]
    found = [(row["account"], row["login_from"], row["paid_from"], row["amount"], datetime.fromisoformat(row["right_at"])) for row in rows]
    assert sorted(found) == sorted(expected)
    assert len(found) >= 20


def test_replicated_sqlite(broker: Broker, tmp_path: Path) -> None:
    """The copy follows each commit; so it does when the program runs again over the same databases."""
    expected = ["1 tea 3", "3 salt 5", "the same as in the shop"]
    for commit in (3, 6):
        assert run(broker, "replicated_sqlite.py", tmp_path) == [f"the copy is following at commit {commit}", *expected]
