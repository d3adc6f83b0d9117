"""Every command of ours that a page shows exists, with its options: readers copy from pages, so who renames an option meets them here."""

import re
from pathlib import Path

import click
import pytest

from moldau.cli.application import COMMANDS, application
from support.pages import PAGES, README

FENCED = re.compile(r"^```(?:sh|console|)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^    (?:\$ )?(moldau .*)$", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
COMMAND = re.compile(r"(?:^|[;|&(] *|\$ |= )moldau((?: +[a-z][a-z-]*)*)(.*)")
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")


def shown(page: Path) -> list[str]:
    """The commands of a page: in blocks of shell with what continues them, and in running text."""
    text = page.read_text()
    lines = [line for block in FENCED.findall(text) for line in re.sub(r"\n {2,}|\\\n", " ", block).splitlines()]
    outside = FENCED.sub("", text).replace(r"\|", "|")
    if page.name == "cli.md":  # its tables leave the first word out
        outside = re.sub(rf"^\| `({'|'.join(COMMANDS)}) ", r"| `moldau \1 ", outside, flags=re.MULTILINE)
    return [line.partition(" # ")[0] for line in [*lines, *INDENTED.findall(outside), *INLINE.findall(outside)] if "moldau" in line]


def found(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that these words lead to, and those that are left."""
    command: click.Command = application
    context = click.Context(application, info_name="moldau")
    while words and isinstance(command, click.Group):
        inner = command.get_command(context, words[0])
        assert inner is not None, f"no command {words[0]}"
        command, words = inner, words[1:]
    return command, words


def options_of(command: click.Command) -> set[str]:
    context = click.Context(command)
    return {name for each in command.get_params(context) for name in (*each.opts, *each.secondary_opts)} | {"-h", "--help"}


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)
def test_commands_and_options_exist(page: Path) -> None:
    for line in shown(page):
        if (match := COMMAND.search(line)) is None or not match.group(1).split():
            continue
        command, _ = found(match.group(1).split())
        given = set(OPTION.findall(re.split(r" \| (?=[a-z])|; |&& ", match.group(2))[0]))
        assert given <= options_of(command), f"{line}: no {', '.join(sorted(given - options_of(command)))}"


def test_the_table_beside_kafkas_tools_is_all_looked_at() -> None:
    (page,) = (page for page in PAGES if page.name == "from-kafka.md")
    assert len([line for line in shown(page) if line.startswith("moldau ")]) >= 45
