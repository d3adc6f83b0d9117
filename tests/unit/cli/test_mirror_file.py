"""The file of a mirror as an argument of commands: one that is wrong is a wrong argument, whatever the command."""

from pathlib import Path

import pytest

from moldau.cli.exit_codes import FAILED, WRONG_USE
from support.console import ConsoleInside

COMMANDS = (
    "run",
    "status",
    "pause",
    "resume",
    "accept --topic orders",
    "topics add web",
    "offsets --group billing",
    "promote",
    "fail-back",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_file_is_exit_code_2_with_file_and_line(tmp_path: Path, command: str) -> None:
    file = tmp_path / "m.toml"
    file.write_text('name = "m"\nmode = "both"\n')
    words = command.split()
    place = 2 if words[0] == "topics" else 1
    ended = ConsoleInside()("mirror", *words[:place], str(file), *words[place:])
    assert ended.code == WRONG_USE
    assert ended.err.splitlines()[-1].startswith(f"Error: Invalid value for FILE: {file}:2: mode: must be ")


def test_a_wrong_file_is_a_finding_of_check(tmp_path: Path) -> None:
    """Claim: other files are checked nevertheless, and the exit code is that of findings."""
    file = tmp_path / "m.toml"
    file.write_text('name = "m"\nmode = \n')
    ended = ConsoleInside()("mirror", "check", str(file))
    assert (ended.code, ended.out.startswith(f"error: {file}:2: not TOML: ")) == (FAILED, True)
