"""``moldau mirror check`` of several files: all clusters are asked at the same time, and a file is one file however it is named."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from moldau.cli.exit_codes import DONE, FAILED
from moldau.testing import Broker
from support.console import ConsoleInside
from support.mirror_world import mirror_text

pytestmark = pytest.mark.system


@pytest.fixture
def closed() -> Iterator[list[str]]:
    """Addresses that refuse connections."""
    with ExitStack() as stack:
        bound = [stack.enter_context(socket.socket()) for _ in range(8)]
        for each in bound:
            each.bind(("127.0.0.1", 0))
        yield [f"127.0.0.1:{each.getsockname()[1]}" for each in bound]


def test_clusters_that_do_not_answer_take_one_timeout_together_and_say_why(tmp_path: Path, closed: list[str]) -> None:
    files = []
    for number in range(4):
        text = mirror_text("copy", closed[2 * number], closed[2 * number + 1], name=f"m{number}")
        files.append(tmp_path / f"m{number}.toml")
        files[-1].write_text(text)
    begun_s = time.monotonic()
    checked = ConsoleInside()("mirror", "check", *map(str, files), "--timeout", "2")
    assert time.monotonic() - begun_s < 8.0, "one after the other they would take 16 s"
    assert checked.code == FAILED
    lines = checked.out.splitlines()
    assert len(lines) == 8
    for number, file in enumerate(files):
        of_file = [line for line in lines if line.startswith(f"error: {file}: ")]
        assert [line.split(": ")[2].split()[0] for line in of_file] == ["source", "target"], (number, of_file)
        assert all(line.endswith(": cannot connect: connection refused") for line in of_file)


def test_a_file_is_checked_once_however_often_and_by_what_path_it_is_given(tmp_path: Path) -> None:
    with Broker() as source, Broker() as target:
        source.create_topic("orders")
        file, link = tmp_path / "m.toml", tmp_path / "link.toml"
        file.write_text(mirror_text("copy", source.bootstrap_servers, target.bootstrap_servers))
        link.symlink_to(file)
        checked = ConsoleInside()("mirror", "check", str(file), os.path.relpath(file), str(link), str(file))
        assert checked.code == DONE
        assert checked.out == f"notice: {file}: the target lacks topic orders of the source, which the mirror will create\n"
