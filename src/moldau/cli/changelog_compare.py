"""``moldau changelog compare``: rows that differ between a source and a replica."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.changelog_options import SHARD, SHARDS_MAX, STORE, changelog_argument
from moldau.cli.exit_codes import MISSING_OR_DOUBLED, UNDECIDED
from moldau.cli.options import NAME, json_option
from moldau.cli.output import counted, print_json, say

if TYPE_CHECKING:
    from moldau.changelog.checksums import Difference, TableCopy
    from moldau.changelog.places import StorePlace
    from moldau.changelog.store import Position, ReplicaStore


@click.command("compare")
@changelog_argument
@click.argument("source", metavar="SOURCE", type=STORE)
@click.argument("replica", metavar="STORE", type=STORE)
@click.option("--shard", metavar="SHARD", type=SHARD, default=0, show_default=True, help="Of the changelog.")
@click.option(
    "--shards",
    metavar="COUNT",
    type=click.IntRange(1, SHARDS_MAX),
    default=1,
    show_default=True,
    help="Over so many the rows of SOURCE are divided; PostgreSQL.",
)
@click.option("--table", "tables", metavar="TABLE", type=NAME, multiple=True, help="Only this one; may be repeated. [default: all]")
@click.option("--max", "most", metavar="COUNT", type=click.IntRange(min=1), default=100, show_default=True, help="End after so many rows.")
@json_option
def compare(
    changelog: str,
    source: "StorePlace",
    replica: "StorePlace",
    shard: int,
    shards: int,
    tables: Sequence[str],
    most: int,
    as_json: bool,
) -> None:
    """Compare SOURCE, the database that is published or another replica, with STORE, a replica of a shard of CHANGELOG.

    Checksums of key ranges are compared, and ranges that differ are halved until the rows can be named: equal tables are read once, and no
    broker is asked. Both have to stand still, or rows that are changed meanwhile are named as well.

    Exit codes: 0 all rows are equal; 4 rows differ; 3 rows differ, and the replica has moved meanwhile, or has not loaded all rows; 1 one
    of both cannot be read.
    """
    from itertools import islice

    from moldau.changelog.checksums import compare as differences_of
    from moldau.changelog.places import PlaceError, open_store
    from moldau.changelog.store import WHOLE, Phase

    if shards > 1:
        if source.kind != "postgresql":
            raise click.UsageError("--shards is for a SOURCE in PostgreSQL")
        if shard >= shards:
            raise click.BadParameter(f"rows that are divided over {shards} shards have shards 0 to {shards - 1}", param_hint="--shard")
    right = open_store(replica, must_exist=True)
    left = open_store(source, must_exist=True)
    try:
        before = right.look(changelog).get(shard)
        if before is None:
            raise PlaceError(f"{replica.text}: it has no position of changelog {changelog}, shard {shard}")
        known = {table.name: table for table in before.tables.values()}
        for name in tables:
            if name not in known:
                raise click.BadParameter(f"{name} is not one of {', '.join(sorted(known)) or 'no tables'}", param_hint="--table")
        chosen = [known[name] for name in (tables or sorted(known))]
        right.look(changelog, chosen)
        left.look(changelog, chosen)
        ours = _divided(left, shards)
        rows: dict[str, int] = {}
        found: list[Difference] = []
        for table in chosen:
            theirs = right.checksum(shard, table.name, WHOLE)
            rows[table.name] = theirs.rows
            if ours.checksum(shard, table.name, WHOLE) != theirs:
                found += islice(differences_of(ours, right, shard, table.name), most - len(found))
        after = right.look(changelog).get(shard)
    finally:
        left.close()
        right.close()
    moved = after != before or before.phase is not Phase.FOLLOWING
    if as_json:
        print_json(_document(changelog, shard, before, rows, found, moved=moved))
    else:
        _print(shard, before, rows, found, moved=moved)
    if found:
        click.get_current_context().exit(UNDECIDED if moved else MISSING_OR_DOUBLED)


def _divided(source: "ReplicaStore", shards: int) -> "TableCopy":
    """What a source has of each shard, if its rows are divided over several."""
    if shards == 1:
        return source
    from moldau.changelog.divided_copy import DividedCopy
    from moldau.changelog.postgres.store import PostgresStore

    assert isinstance(source, PostgresStore)
    return DividedCopy(source, shards)


def _print(shard: int, position: "Position", rows: Mapping[str, int], found: "Sequence[Difference]", *, moved: bool) -> None:
    for each in found:
        say(str(each))
    if not found:
        tables = ", ".join(f"{name} ({counted(count, 'row')})" for name, count in rows.items())
        say(f"shard {shard}, commit {position.commit}: equal: {tables or 'no tables'}")
    else:
        say(f"shard {shard}, commit {position.commit}: {counted(len(found), 'row')} named that differ")
        if moved:
            say("the replica has changed meanwhile, or has not loaded all rows: compare again while both stand still")


def _document(
    changelog: str, shard: int, position: "Position", rows: Mapping[str, int], found: "Sequence[Difference]", *, moved: bool
) -> dict[str, Any]:
    from moldau.changelog.columns import to_json

    return {
        "changelog": changelog,
        "shard": shard,
        "commit": position.commit,
        "moved": moved,
        "tables": dict(rows),
        "differences": [
            {"kind": each.kind.value, "table": each.table, "key": list(map(to_json, each.key)), "columns": list(each.columns)}
            for each in found
        ],
    }
