"""``moldau mirror offsets``: where a consumer group of the source continues in the target."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from moldau.cli.exit_codes import NOT_TRANSLATED
from moldau.cli.mirror_file import as_operator, file_argument, plan_of
from moldau.cli.options import timeout_option
from moldau.cli.output import counted, print_json, print_table, say

if TYPE_CHECKING:
    from moldau.mirror.operator import Operator
    from moldau.mirror.translation.translate import Translated

_COLUMNS = ("topic", "partition", "offset", "from", "reason")


@click.command("offsets")
@file_argument
@click.option("--group", metavar="GROUP", required=True, help="The consumer group of the source.")
@click.option("--apply", is_flag=True, help="Commit the offsets for this group in the target. It may have no members there.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@timeout_option(60.0)
def offsets(file: Path, group: str, apply: bool, as_json: bool, timeout: float) -> None:
    """Show where GROUP continues in the target of the mirror of FILE: at the record that it reads next in the source.

    What it has read comes not again, and nothing is left out, where a partition of the target has records of one partition of the source.
    Where it has those of several, nothing is left out.

    Exit codes: 0 all offsets were translated; 8 some were not, or not yet, and the others are shown, and committed with --apply; 1 a
    cluster does not answer, no source has the group, or it has members in the target.
    """
    plan = plan_of(file)

    async def work(operator: "Operator") -> "list[Translated]":
        from moldau.mirror.translation.groups import commit, read

        found = await read(operator, group)
        if apply:
            await commit(operator, group, found)
        return found

    found = as_operator(plan, timeout, work)
    if as_json:
        print_json({"group": group, "applied": apply, "offsets": [_row(each) for each in found]})
    else:
        _print(group, found, applied=apply)
    if any(each.offset is None for each in found):
        click.get_current_context().exit(NOT_TRANSLATED)


def _row(each: "Translated") -> dict[str, object]:
    sources = [
        {"source": place.partition.source, "topic": place.partition.topic, "partition": place.partition.number, "offset": place.offset}
        for place in each.sources
    ]
    return {
        "topic": each.target.topic,
        "partition": each.target.partition,
        "offset": each.offset,
        "from": sources,
        "reason": each.reason or None,
    }


def _print(group: str, found: "list[Translated]", *, applied: bool) -> None:
    if not found:
        say(f"group {group} has no offsets of topics that are mirrored")
        return
    rows: list[list[object]] = [
        [*each.target, "-" if each.offset is None else each.offset, ", ".join(map(str, each.sources)), each.reason] for each in found
    ]
    print_table(_COLUMNS, rows, numeric=("partition", "offset"), drop=("from",), under="reason")
    count = sum(each.offset is not None for each in found)
    say(f"{counted(count, 'offset')} {'committed in the target' if applied else 'translated'}, {len(found) - count} not")
