"""``moldau mirror topics``: which topics a mirror takes, changed while it runs."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from moldau.cli.mirror_file import as_operator, file_argument, plan_of
from moldau.cli.options import timeout_option
from moldau.cli.output import say

if TYPE_CHECKING:
    from moldau.mirror.patterns import Pattern
    from moldau.mirror.selection import Action


@click.group("topics")
def topics() -> None:
    """Add topics to a mirror that runs, or remove some. Other topics are not disturbed."""


@topics.command("add")
@file_argument
@click.argument("patterns", metavar="PATTERN...", nargs=-1, required=True)
@timeout_option(10.0)
def add(file: Path, patterns: tuple[str, ...], timeout: float) -> None:
    """Mirror topics whose whole names match a PATTERN, too, also those to come. What the file excludes stays excluded."""
    from moldau.mirror.selection import Action

    _change(file, Action.ADD, patterns, timeout)


@topics.command("remove")
@file_argument
@click.argument("patterns", metavar="PATTERN...", nargs=-1, required=True)
@timeout_option(10.0)
def remove(file: Path, patterns: tuple[str, ...], timeout: float) -> None:
    """Mirror topics whose whole names match a PATTERN no more. What the target has of them stays there.

    A PATTERN that matches no topic is an error. moldau mirror topics forget undoes an addition.
    """
    from moldau.mirror.selection import Action

    _change(file, Action.REMOVE, patterns, timeout)


@topics.command("forget")
@file_argument
@click.argument("patterns", metavar="PATTERN...", nargs=-1, required=True)
@timeout_option(10.0)
def forget(file: Path, patterns: tuple[str, ...], timeout: float) -> None:
    """Undo what was added or removed with each PATTERN, as it was written then. The file decides again over its topics.

    moldau mirror status shows the patterns.
    """
    from moldau.mirror.topic_changes import forget as withdraw

    found = [_pattern(text) for text in patterns]
    for line in as_operator(plan_of(file), timeout, lambda operator: withdraw(operator, found)):
        say(line)


def _change(file: Path, action: "Action", texts: tuple[str, ...], timeout_s: float) -> None:
    from moldau.mirror.selection import Change
    from moldau.mirror.topic_changes import change

    changes = [Change(action, _pattern(text)) for text in texts]
    for line in as_operator(plan_of(file), timeout_s, lambda operator: change(operator, changes)):
        say(line)


def _pattern(text: str) -> "Pattern":
    from moldau.mirror.patterns import parse_pattern

    try:
        return parse_pattern(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="PATTERN") from error
