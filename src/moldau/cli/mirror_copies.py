"""What the commands that alter copies share: which file, and which of its topics are meant."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from moldau.cli.mirror_file import plan_of

if TYPE_CHECKING:
    from moldau.mirror.operator import Operator
    from moldau.mirror.patterns import Pattern
    from moldau.mirror.plan.values import MirrorPlan
    from moldau.mirror.topic_choice import TopicChoice

F = TypeVar("F", bound=Callable[..., Any])


def topic_option(function: F) -> F:
    """``--topic PATTERN``, several times, as the parameter `topics`."""
    text = "Only topics of the mirror whose whole name matches; may be repeated.  [default: all]"
    return click.option("--topic", "topics", metavar="PATTERN", multiple=True, help=text)(function)


def read_copy(file: Path) -> "MirrorPlan":
    """The file of a copy. click.ClickException."""
    from moldau.mirror.plan.values import Mode

    plan = plan_of(file)
    if plan.mode is not Mode.COPY:
        raise click.ClickException(f"{file}: its mode is {plan.mode.value!r}; only a copy keeps offsets and can be promoted")
    return plan


def patterns_of(topics: Sequence[str]) -> "tuple[Pattern, ...]":
    """The patterns of `--topic`. click.BadParameter."""
    from moldau.mirror.patterns import parse_pattern

    try:
        return tuple(map(parse_pattern, topics))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--topic") from error


async def choice(operator: "Operator", patterns: "tuple[Pattern, ...]", where: str) -> "TopicChoice":
    """The mirror's topics that are meant, in `where`. PeerError, WorldError."""
    from moldau.mirror.topic_choice import TopicChoice

    selection = (await operator.board()).selection(operator.plan.selection)
    return TopicChoice(operator.plan.name, selection, patterns, where)


def offsets_text(start: int, end: int) -> str:
    """The offsets from one up to another, this one excluded; empty where there are none."""
    return "" if start >= end else str(start) if end == start + 1 else f"{start} to {end - 1}"
