"""``moldau mirror topics``: which topics a mirror takes, changed while it runs."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from moldau.cli.mirror_file import as_operator, file_argument, plan_of
from moldau.cli.options import timeout_option
from moldau.cli.output import say

if TYPE_CHECKING:
    from moldau.mirror.operator import Operator
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
    """Mirror topics whose whole names match a PATTERN, too. What the file excludes stays excluded."""
    from moldau.mirror.selection import Action

    _change(file, Action.ADD, patterns, timeout)


@topics.command("remove")
@file_argument
@click.argument("patterns", metavar="PATTERN...", nargs=-1, required=True)
@timeout_option(10.0)
def remove(file: Path, patterns: tuple[str, ...], timeout: float) -> None:
    """Mirror topics whose whole names match a PATTERN no more. What the target has of them stays there."""
    from moldau.mirror.selection import Action

    _change(file, Action.REMOVE, patterns, timeout)


def _change(file: Path, action: "Action", texts: tuple[str, ...], timeout_s: float) -> None:
    plan = plan_of(file)
    patterns = [_pattern(text) for text in texts]

    async def order(operator: "Operator") -> list[str]:
        from moldau.mirror.catalog import Catalog
        from moldau.mirror.selection import Change
        from moldau.mirror.state.orders import change_record

        changes = [Change(action, pattern) for pattern in patterns]
        before = after = (await operator.board()).selection(plan.selection)
        catalogs = await operator.source_catalogs()
        for change in changes:
            after = after.with_change(change)
        await operator.order([change_record(plan.name, change, operator.by, operator.now_ms) for change in changes])
        lines = []
        for source, catalog in catalogs.items():
            if not isinstance(catalog, Catalog):
                lines.append(f"{source}: its topics are not known now: {catalog}")
                continue
            difference = before.difference(after, catalog.topics)
            lines += [f"{source}: {topic} is added" for topic in difference.come]
            lines += [f"{source}: {topic} is removed" for topic in difference.go]
            if not difference.come and not difference.go:
                lines.append(f"{source}: no topic is added or removed now")
        return lines

    for line in as_operator(plan, timeout_s, order):
        say(line)


def _pattern(text: str) -> "Pattern":
    from moldau.mirror.patterns import parse_pattern

    try:
        return parse_pattern(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="PATTERN") from error
