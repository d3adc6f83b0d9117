"""Commands of tiers where they can do nothing: one line that names what helps, and nothing written or started."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from moldau.adapters.process_identity import identity_of
from moldau.cli.application import application
from moldau.tiers.state import TierProcess, TiersState, read_tiers_state, write_tiers_state
from support.pages import ROOT

HERE = identity_of(os.getpid())


def refused(*words: str) -> str:
    """The line of a command that has to fail."""
    result = CliRunner().invoke(application, ["tiers", *words])
    assert result.exit_code == 1, result.output
    assert result.output.startswith("Error: ")
    assert result.output.count("\n") == 1
    return result.output.removeprefix("Error: ").rstrip("\n")


@pytest.fixture
def ended() -> str:
    """The identity of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = identity_of(child.pid)
    child.communicate(b"\n")
    return identity


def put(directory: Path, supervisor: str, *processes: TierProcess) -> None:
    write_tiers_state(str(directory), TiersState("small", "small.toml", supervisor, processes))


def test_where_there_are_no_tiers_the_command_that_starts_them_is_named(tmp_path: Path) -> None:
    for words in (("status",), ("down",), ("kill", "mirror.a"), ("restart", "mirror.a")):
        expected = f"{tmp_path}: there are no tiers here; `moldau tiers up FILE --data {tmp_path}` starts them"
        assert refused(*words, "--data", str(tmp_path)) == expected


def test_without_a_supervisor_nothing_can_be_stopped_or_restarted(tmp_path: Path, ended: str) -> None:
    put(tmp_path, ended, TierProcess("mirror", "mirror.a", "a:1", ended))
    for words in (("down",), ("restart", "mirror.a")):
        assert refused(*words, "--data", str(tmp_path)) == f"{tmp_path}: `moldau tiers up` does not run here"
    # and the status has what there was
    result = CliRunner().invoke(application, ["tiers", "status", "--data", str(tmp_path)])
    assert result.exit_code == 1
    assert "mirror.a  a:1        -  dead" in result.output


def test_a_dead_process_is_not_signalled_and_nor_is_another_with_its_id(tmp_path: Path, ended: str) -> None:
    put(tmp_path, HERE, TierProcess("mirror", "mirror.a", "a:1", ended), TierProcess("mirror", "mirror.b", "a:1", f"{os.getpid()} 1 x"))
    dead = "is dead; `moldau tiers up` starts it again while it runs"
    assert refused("kill", "mirror.a", "--data", str(tmp_path)) == f"mirror.a {dead}"


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("...")
    file = ROOT / "examples" / "laptop.toml"
    expected = f"{tmp_path}: is no directory of tiers and not empty (thesis.txt); choose another one with --data"
    assert refused("up", str(file), "--data", str(tmp_path)) == expected
    assert sorted(each.name for each in tmp_path.iterdir()) == ["thesis.txt"]


def test_a_state_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "tiers.json").write_text("{")
    expected = f"{tmp_path}/tiers.json: not the state of tiers; if no process of them runs, remove the file"
    assert refused("status", "--data", str(tmp_path)) == expected


def test_the_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    processes = [TierProcess("broker", "broker.a", "a:1", HERE, 3), TierProcess("mirror", "mirror.a", "a:1", "", 0, serves=False)]
    put(tmp_path, HERE, *processes)
    assert read_tiers_state(str(tmp_path)) == TiersState("small", "small.toml", HERE, processes)


TIERS = """
name = "small"
[clusters.ewr]
kind = "local"
datacenter = "EWR"
port = {port}
[categories.tracking]
clusters = {{ EWR = "ewr" }}
"""


def test_an_address_that_is_taken_is_named_with_its_cluster_before_anything_starts(tmp_path: Path) -> None:
    file, directory = tmp_path / "small.toml", tmp_path / "data"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        file.write_text(TIERS.format(port=port))
        expected = f"cluster ewr cannot listen on 127.0.0.1:{port}: address already in use"
        assert refused_last(file, directory) == f"{expected}; stop the process that listens there, or give it another port in {file}"
    assert [each.name for each in directory.iterdir()] == ["tiers.lock"]


def refused_last(file: Path, directory: Path) -> str:
    """The last line of `tiers up`, which has to fail; warnings are before it."""
    result = CliRunner().invoke(application, ["tiers", "up", str(file), "--data", str(directory)])
    assert result.exit_code == 1, result.output
    return result.output.splitlines()[-1].removeprefix("Error: ")


def test_brokers_have_rows_of_their_own_so_their_cluster_shows_one_address(tmp_path: Path) -> None:
    put(tmp_path, HERE, TierProcess("mirror", "mirror.a", "127.0.0.1:19040,127.0.0.1:19041,127.0.0.1:19042", HERE))
    result = CliRunner().invoke(application, ["tiers", "status", "--data", str(tmp_path)])
    assert f"mirror.a  127.0.0.1:19040 +2  {os.getpid()}  up" in result.output
