"""``moldau mirror pause``, ``resume`` and ``accept``."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from moldau.cli.mirror_file import as_operator, file_argument, plan_of
from moldau.cli.options import PARTITIONS_MAX, TOPIC, timeout_option
from moldau.cli.output import say

if TYPE_CHECKING:
    from moldau.mirror.state.orders import Scope

F = TypeVar("F", bound=Callable[..., Any])


def _topic_option(text: str, *, required: bool = False) -> Callable[[F], F]:
    return click.option("--topic", type=TOPIC, required=required, help=text)


def _partition_option(function: F) -> F:
    return click.option("-p", "--partition", type=click.IntRange(0, PARTITIONS_MAX), help="Only this partition of the topic.")(function)


def _scope(topic: str | None, partition: int | None) -> "Scope":
    from moldau.mirror.state.orders import Scope

    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    return Scope(topic, partition)


@click.command("pause")
@file_argument
@_topic_option("Only this topic, of every source.")
@_partition_option
@timeout_option(10.0)
def pause(file: Path, topic: str | None, partition: int | None, timeout: float) -> None:
    """Stop mirroring as of now: the mirror of FILE, one of its topics, or a partition. Others are not disturbed.

    A pause lasts until `moldau mirror resume`, also if the processes are started again meanwhile. A topic or a partition that the mirror
    does not have is an error.
    """
    from moldau.mirror.pauses import pause as begin

    plan, scope = plan_of(file), _scope(topic, partition)
    as_operator(plan, timeout, lambda operator: begin(operator, scope))
    say(f"{scope} is paused")


@click.command("resume")
@file_argument
@_topic_option("Only pauses of this topic and its partitions.")
@_partition_option
@timeout_option(10.0)
def resume(file: Path, topic: str | None, partition: int | None, timeout: float) -> None:
    """End pauses: all of the mirror of FILE, or those of a topic or a partition. What has halted there is tried again.

    What stays halted until an operator decides is printed with what to do: see `moldau mirror accept`.
    """
    from moldau.mirror.pauses import resume as end

    plan, scope = plan_of(file), _scope(topic, partition)
    for line in as_operator(plan, timeout, lambda operator: end(operator, scope)):
        say(line)


@click.command("accept")
@file_argument
@_topic_option("The topic.", required=True)
@_partition_option
@timeout_option(30.0)
def accept(file: Path, topic: str, partition: int | None, timeout: float) -> None:
    """Continue what has halted of a topic from where its source is now; what is skipped is printed.

    For partitions that are deleted, recreated, truncated or out of retention. A copy continues only after a gap: it is out of retention.
    """
    from moldau.mirror.accepting import NotAcceptedError
    from moldau.mirror.accepting import accept as accepted

    try:
        lines = as_operator(plan_of(file), timeout, lambda operator: accepted(operator, topic, partition))
    except NotAcceptedError as error:
        raise click.ClickException(str(error)) from error
    for line in lines:
        say(line)
