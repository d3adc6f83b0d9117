"""``moldau mirror promote``: the copy becomes the cluster that clients write to."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from moldau.cli.exit_codes import FAILED
from moldau.cli.mirror_copies import choice, offsets_text, patterns_of, read_copy, topic_option
from moldau.cli.mirror_file import as_operator, file_argument
from moldau.cli.options import SECONDS, json_option
from moldau.cli.output import counted, print_json, print_table, say

if TYPE_CHECKING:
    from moldau.mirror.operator import Operator
    from moldau.mirror.promotion import Outcome

WAIT_S = 60.0


@click.command("promote")
@file_argument
@topic_option
@click.option(
    "--wait", metavar="SECONDS", type=SECONDS, help=f"How long to wait until the copy has all that the source has.  [default: {WAIT_S:g}]"
)
@click.option("--now", is_flag=True, help="A failover: promote what the target has; the source is not asked.")
@click.option("--dry-run", is_flag=True, help="Only show what would be promoted and dropped.")
@json_option
def promote(file: Path, topics: tuple[str, ...], wait: float | None, now: bool, dry_run: bool, as_json: bool) -> None:
    """Promote the copy of FILE: its topics in the target take no more from the mirror, and clients write to them. They
    are those of FILE, with what moldau mirror topics has added and removed.

    \b
    A planned move: stop the producers of the source first.
      moldau mirror promote standby.toml
    The source is lost:
      moldau mirror promote standby.toml --now

    Each log is cut at its last stable offset, after which clients write. Without --now it waits until the copy has all that the source has,
    with no transaction open, and promotes nothing if that does not come. With --now the cut drops what transactions that are open have, and
    what comes after it; the offsets are shown. It may be repeated: partitions that are promoted already are left as they are.

    Exit code 1: not all is promoted, or the source has records of a planned move that the copy does not have.
    """
    from moldau.mirror.operator import CONTACT_S
    from moldau.mirror.promotion import SETTLE_S, Promotion, SourceAwayError, State

    if now and wait is not None:
        raise click.UsageError("give only one of --wait and --now")
    plan = read_copy(file)
    patterns = patterns_of(topics)
    limit_s = 0.0 if dry_run else SETTLE_S if now else WAIT_S if wait is None else wait

    async def act(operator: "Operator") -> "list[Outcome]":
        (source,) = operator.sources.values()
        chosen = await choice(operator, patterns, "the target" if now else "source or target")
        promotion = Promotion(operator.target, None if now else source, chosen.of)
        outcomes = await promotion.prepare(await promotion.partitions(), limit_s)
        ready = [each for each in outcomes if each.state is State.READY]
        if dry_run or not (now or len(ready) == len(outcomes)):
            return outcomes
        promoted = {each.partition: each for each in await promotion.promote(ready)}
        return [promoted.get(each.partition, each) for each in outcomes]

    try:
        outcomes = as_operator(plan, CONTACT_S, act)
    except SourceAwayError as error:
        raise click.ClickException(f"{error}; nothing was changed. --now promotes what the target has") from error
    if as_json:
        print_json([_as_json(each) for each in outcomes])
    elif outcomes:
        _show(outcomes)
    wanted = State.READY if dry_run else State.PROMOTED
    done = sum(each.state is wanted for each in outcomes)
    _end(outcomes, done, "ready" if dry_run else "promoted")


def _end(outcomes: "Sequence[Outcome]", done: int, word: str) -> None:
    left_behind = sum(each.left_behind for each in outcomes)
    if not outcomes:
        say("nothing to promote: no topic of FILE in the target is a copy, or all are promoted", err=True)
        return
    say(f"{done} of {counted(len(outcomes), 'partition')} {word}", err=True)
    if left_behind:
        say(
            f"the source has {counted(left_behind, 'offset')} more: producers wrote there meanwhile; moldau mirror fail-back lists them",
            err=True,
        )
    if done < len(outcomes) or left_behind:
        click.get_current_context().exit(FAILED)


def _show(outcomes: "Sequence[Outcome]") -> None:
    rows = [
        (
            each.partition,
            each.state.value,
            each.offset if each.offset >= 0 else "",
            offsets_text(each.offset, each.end),
            each.left_behind or "",
            each.reason,
        )
        for each in outcomes
    ]
    print_table(("partition", "state", "offset", "dropped", "left behind", "note"), rows, numeric=("offset", "left behind"))


def _as_json(outcome: "Outcome") -> dict[str, object]:
    return {
        "topic": outcome.partition.topic,
        "partition": outcome.partition.partition,
        "state": outcome.state.value,
        "epoch": outcome.epoch,
        "offset": outcome.offset,
        "dropped": [outcome.offset, outcome.end] if outcome.dropped else None,
        "left_behind": outcome.left_behind,
        "reason": outcome.reason,
    }
