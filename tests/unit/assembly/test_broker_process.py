"""A broker of a cluster on this host starts without what only the command line needs, and says in one line why it cannot start."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

MODULE = "moldau.assembly.local_cluster.broker_process"


@pytest.fixture
def taken() -> Iterator[str]:
    """An address at which another process listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def start(*settings: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-m", MODULE, *settings], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_nothing_of_the_command_line_is_imported() -> None:
    """Claim: what parses options takes no memory in a broker."""
    code = f"import sys, {MODULE}; print(sorted({{'click', 'uuid', 'moldau.cli'}}.intersection(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_setting_that_is_not_known_is_named() -> None:
    """Claim: exit code 2, as of every wrong argument."""
    assert start("num.partition=3") == (
        2,
        "Error: --set num.partition=3: unknown configuration 'num.partition', did you mean 'num.partitions'?\n",
    )


def test_a_port_that_is_taken_is_named_and_nothing_is_made(tmp_path: Path, taken: str) -> None:
    """Claim: the port is taken before anything is made in the directory."""
    expected = f"Error: cannot listen on PLAINTEXT://{taken}: address already in use\n"
    assert start(f"listeners=PLAINTEXT://{taken}", f"log.dirs={tmp_path}/data") == (1, expected)
    assert [*tmp_path.iterdir()] == []


def test_a_directory_of_other_files_is_not_used(tmp_path: Path) -> None:
    """Claim: a slip in a name puts no broker's files among those of a program; a file is no directory at all."""
    (tmp_path / "program.py").touch()
    code, line = start("listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path}")
    assert (code, line.partition(";")[0]) == (1, f"Error: {tmp_path}: is no data directory and not empty (program.py)")
    code, line = start("listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={tmp_path}/program.py")
    assert (code, line) == (1, f"Error: {tmp_path}/program.py: is a file, not a directory\n")
    assert [each.name for each in tmp_path.iterdir()] == ["program.py"]
