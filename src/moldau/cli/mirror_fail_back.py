"""``moldau mirror fail-back``: a former source becomes a copy of the cluster that was promoted."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from moldau.cli.exit_codes import FAILED
from moldau.cli.mirror_copies import choice, offsets_text, patterns_of, read_copy, topic_option
from moldau.cli.mirror_file import as_operator, file_argument
from moldau.cli.options import json_option
from moldau.cli.output import counted, print_json, print_table, say

if TYPE_CHECKING:
    from moldau.mirror.fail_back import Outcome
    from moldau.mirror.operator import Operator


@click.command("fail-back")
@file_argument
@topic_option
@click.option("--discard", is_flag=True, help="Drop the records that were never mirrored.")
@click.option(
    "--save",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the records that were never mirrored to files in DIR, then drop them.",
)
@click.option("--dry-run", is_flag=True, help="Only show what was never mirrored.")
@json_option
def fail_back(file: Path, topics: tuple[str, ...], discard: bool, save: Path | None, dry_run: bool, as_json: bool) -> None:
    """Make a former source the copy of the cluster that was promoted. FILE is the mirror that runs from now on: its source is the cluster
    that was promoted, and its target the former source, the only one that this command changes.

    \b
    moldau mirror fail-back back.toml --dry-run
    moldau mirror fail-back back.toml --save lost/
    moldau mirror run back.toml

    Both logs have the same records up to an offset. What the former source has after it was never mirrored: those offsets are shown, and
    nothing is changed while there are any, unless --save or --discard says what becomes of them. moldau log dump --records shows what was
    saved. It may be repeated: partitions that follow already are left as they are.

    Exit code 1: not all partitions follow.
    """
    from moldau.mirror.fail_back import FailBack, State
    from moldau.mirror.keeping import RecordKeeper
    from moldau.mirror.operator import CONTACT_S

    if sum((discard, save is not None, dry_run)) > 1:
        raise click.UsageError("give only one of --discard, --save and --dry-run")
    plan = read_copy(file)
    patterns = patterns_of(topics)
    discards = discard or save is not None

    async def act(operator: "Operator") -> "list[Outcome]":
        ((name, source),) = operator.sources.items()
        chosen = await choice(operator, patterns, "source and target")
        await operator.reach_source(name)
        failing_back = FailBack(operator.target, source, chosen.of)
        partitions = await failing_back.partitions()
        outcomes = await failing_back.compare(partitions)
        may_begin = all(each.state is State.READY and (discards or not each.lost) for each in outcomes)
        if dry_run or not may_begin:
            return outcomes
        return await failing_back.follow(partitions, None if save is None else RecordKeeper(operator.target, save).keep, discards=discards)

    outcomes = as_operator(plan, CONTACT_S, act)
    if as_json:
        print_json([_as_json(each) for each in outcomes])
    elif outcomes:
        _show(outcomes)
    if not outcomes:
        say("nothing to do: source and target have no topic of FILE in common", err=True)
        return
    wanted = State.READY if dry_run else State.FOLLOWS
    done = sum(each.state is wanted for each in outcomes)
    say(f"{done} of {counted(len(outcomes), 'partition')} {'can follow' if dry_run else 'follow'}", err=True)
    if done < len(outcomes):
        if lost := sum(each.lost for each in outcomes if each.state is State.READY):
            say(
                f"{counted(lost, 'offset')} never mirrored, nothing was changed; --save keeps them in files, --discard drops them", err=True
            )
        click.get_current_context().exit(FAILED)


def _show(outcomes: "Sequence[Outcome]") -> None:
    rows = [
        (
            each.partition,
            each.state.value,
            each.offset if each.offset >= 0 else "",
            offsets_text(each.offset, each.end),
            each.kept_in,
            each.reason,
        )
        for each in outcomes
    ]
    print_table(("partition", "state", "offset", "never mirrored", "saved in", "note"), rows, numeric=("offset",))


def _as_json(outcome: "Outcome") -> dict[str, object]:
    return {
        "topic": outcome.partition.topic,
        "partition": outcome.partition.partition,
        "state": outcome.state.value,
        "offset": outcome.offset,
        "never_mirrored": [outcome.offset, outcome.end] if outcome.lost else None,
        "saved_in": outcome.kept_in,
        "reason": outcome.reason,
    }
