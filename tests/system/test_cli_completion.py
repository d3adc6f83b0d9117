"""Shells complete commands, options, topics and groups; where no broker answers they complete nothing, soon and without a word."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.testing.broker import Broker
from support.console import MOLDAU, Console

pytestmark = pytest.mark.system

SILENT_LIMIT_S = 10.0
"""Far above the second that the broker has, for a machine that is busy."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        for topic in ("orders", "orders-dead", "payments", "shop._commits"):
            broker.create_topic(topic)
        console = Console(broker.bootstrap_servers)
        assert console("group", "reset", "billing", "--topic", "orders", "--to", "earliest", "--execute").code == 0
        yield broker


def completed(line: str, bootstrap: str = "", shell: str = "bash") -> list[str]:
    """What a shell offers for the last word of the line, as its script asks for it."""
    words = line.split(" ")
    variables = {"_MOLDAU_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    environment = {**os.environ, **variables, **({"MOLDAU_BOOTSTRAP": bootstrap} if bootstrap else {})}
    done = subprocess.run([MOLDAU], env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return [row.partition(",")[2] for row in done.stdout.splitlines() if row]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("moldau topic describe or", ["orders", "orders-dead"]),
        ("moldau topic describe orders pay", ["payments"]),
        ("moldau consume p", ["payments"]),
        ("moldau produce orders-", ["orders-dead"]),
        ("moldau consume __cons", ["__consumer_offsets"]),
        ("moldau group describe b", ["billing"]),
        ("moldau consume orders --group ", ["billing"]),
        ("moldau group reset billing --topic p", ["payments"]),
        ("moldau config describe --topic o", ["orders", "orders-dead"]),
        ("moldau topic create o", []),
        ("moldau changelog status s", ["shop"]),
        ("moldau broker drain ", ["0"]),
        ("moldau gr", ["group"]),
        ("moldau topic describe --js", ["--json"]),
    ],
)
def test_what_is_completed(broker: Broker, line: str, names: list[str]) -> None:
    assert completed(line, broker.bootstrap_servers) == names


def test_the_broker_is_that_of_the_line(broker: Broker) -> None:
    assert completed(f"moldau topic describe -b {broker.bootstrap_servers} pay") == ["payments"]


def test_without_a_broker_nothing_is_completed() -> None:
    with socket.socket() as silent:  # takes connections and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        begun = time.monotonic()
        assert completed("moldau topic describe o", f"127.0.0.1:{silent.getsockname()[1]}") == []
        assert time.monotonic() - begun < SILENT_LIMIT_S
    assert completed("moldau topic describe o", "127.0.0.1:1") == []
    assert completed("moldau topic describe o", "no port") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_for_its_shell(shell: str, tmp_path: Path) -> None:
    done = Console()("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert "_MOLDAU_COMPLETE" in done.out
    if program := shutil.which(shell):
        (tmp_path / "script").write_text(done.out)
        subprocess.run([program, "-n", tmp_path / "script"], check=True)


def test_bash_completes_with_the_script(broker: Broker) -> None:
    script = """
    eval "$(moldau completion bash)"
    COMP_WORDS=(moldau topic describe pay) COMP_CWORD=3
    _moldau_completion moldau pay describe
    echo "${COMPREPLY[@]}"
    """
    path = f"{Path(MOLDAU).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "MOLDAU_BOOTSTRAP": broker.bootstrap_servers}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("payments\n", "")
