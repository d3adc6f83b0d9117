"""What the commands that alter copies share: the file, and which of its topics are meant."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from moldau.cli.options import ExistingPath

if TYPE_CHECKING:
    from moldau.mirror.plan.values import MirrorPlan

F = TypeVar("F", bound=Callable[..., Any])

file_argument = click.argument("file", type=ExistingPath(dir_okay=False))


def topic_option(function: F) -> F:
    """``--topic PATTERN``, several times, as the parameter `topics`."""
    text = "Only topics of FILE whose whole name matches; may be repeated.  [default: all of FILE]"
    return click.option("--topic", "topics", metavar="PATTERN", multiple=True, help=text)(function)


def read_copy(file: str) -> "MirrorPlan":
    """The file of a copy. click.ClickException."""
    from moldau.mirror.plan.file import read_plan
    from moldau.mirror.plan.values import Mode
    from moldau.model.toml_table import PlanFileError

    try:
        plan = read_plan(Path(file))
    except PlanFileError as error:
        raise click.ClickException(str(error)) from error
    if plan.mode is not Mode.COPY:
        raise click.ClickException(f"{file}: its mode is {plan.mode.value!r}; only a copy keeps offsets and can be promoted")
    return plan


def selector(plan: "MirrorPlan", topics: Sequence[str]) -> Callable[[str], bool]:
    """Whether a topic is one of the file's, and of `--topic`. click.BadParameter."""
    from moldau.mirror.patterns import is_matched, parse_pattern

    try:
        patterns = tuple(map(parse_pattern, topics))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--topic") from error
    selection = plan.selection
    return lambda name: selection.selects(name) and (not patterns or is_matched(name, patterns))


def offsets_text(start: int, end: int) -> str:
    """The offsets from one up to another, this one excluded; empty where there are none."""
    return "" if start >= end else str(start) if end == start + 1 else f"{start} to {end - 1}"
