"""A short option means one thing over all commands, the one that docs/cli.md says."""

import re
from collections.abc import Iterator
from pathlib import Path

import click

from moldau.cli.application import application

MEANINGS = {
    "-b": "--bootstrap",
    "-c": "--config",
    "-d": "--delete",
    "-f": "--format",
    "-g": "--group",
    "-h": "--help",
    "-H": "--header",
    "-k": "--key-field",
    "-K": "--key-separator",
    "-l": "--listen",
    "-n": "--max",
    "-p": "--partition",
    "-r": "--replication-factor",
    "-s": "--set",
    "-t": "--type",
    "-v": "--version",
    "-z": "--compression",
}


def commands(group: click.Group, path: str = "moldau") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


def test_each_short_option_stands_for_one_long_one() -> None:
    found: dict[str, set[str]] = {"-h": {"--help"}}
    for path, command in commands(application):
        for parameter in command.params:
            shorts = [name for name in parameter.opts if re.fullmatch("-[a-zA-Z]", name)]
            longs = {name for name in parameter.opts if name.startswith("--")}
            for short in shorts:
                assert longs, f"{path}: {short} has no long name"
                found.setdefault(short, set()).update(longs)
    assert found == {short: {long} for short, long in MEANINGS.items()}


def test_the_table_of_short_options_is_that_of_the_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    assert dict(re.findall(r"^\| `(-\w)` \| `(--[\w-]+)` \|", page, re.MULTILINE)) == MEANINGS
