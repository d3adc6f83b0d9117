"""``moldau changelog status``: the master of each shard, what the log has, and how far replicas are."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.changelog_options import STORE, changelog_argument
from moldau.cli.exit_codes import FAILED
from moldau.cli.options import bootstrap_option, json_option, open_cluster, timeout_option
from moldau.cli.output import human_bytes, print_json, print_table, say

if TYPE_CHECKING:
    from moldau.changelog.places import StorePlace
    from moldau.changelog.status import ReplicaStatus, ShardStatus, StoreFailure

_SHARD_COLUMNS = ("shard", "epoch", "commit", "time", "rows", "master", "table", "offsets", "size")
_REPLICA_COLUMNS = ("replica", "shard", "state", "epoch", "commit", "behind", "time behind")


@click.command("status")
@changelog_argument
@click.option("--replica", "places", metavar="STORE", type=STORE, multiple=True, help="A replica to show, too; may be repeated.")
@bootstrap_option
@json_option
@timeout_option(10.0)
def status(changelog: str, places: Sequence["StorePlace"], bootstrap: str, as_json: bool, timeout: float) -> None:
    """Show each shard of CHANGELOG: its epoch, the last commit and its time, the master's address, and the tables' topics.

    OFFSETS are from the first to the end of a topic's partition; SIZE is what it takes on its leader's disk. A STORE is sqlite:///PATH,
    duckdb:///PATH, postgresql://... or a directory of Delta tables; its position is read from it, whether or not a replica runs. The master
    has the address that it was opened or published with. A replica that is loading is at no commit, so COMMIT and BEHIND are `-`, and TIME
    BEHIND is how long ago it began, or was at a commit.

    Exit code 1: a store cannot be read, or is no replica of the changelog.
    """
    from moldau.changelog.status import StoreFailure, replica_statuses, shard_statuses

    with open_cluster(bootstrap, timeout) as cluster:
        shards = shard_statuses(cluster, changelog)
    replicas: list[ReplicaStatus] = []
    failures: list[StoreFailure] = []
    for place in places:
        found = replica_statuses(changelog, [each.master for each in shards], place)
        if isinstance(found, StoreFailure):
            failures.append(found)
        else:
            replicas += found
    if as_json:
        print_json(_document(changelog, shards, replicas, failures))
    else:
        _print(shards, replicas)
        for each in failures:
            say(f"Error: {each.place}: {each.error.removeprefix(f'{each.place}: ')}", err=True)
    if failures:
        click.get_current_context().exit(FAILED)


def _print(shards: "Sequence[ShardStatus]", replicas: "Sequence[ReplicaStatus]") -> None:
    rows = []
    for master, tables in shards:
        what = [master.shard, master.epoch, f"{master.commit:,}", _time(master.time_ms) or "-"]
        what += ["complete" if master.complete else "reading", master.address or "-"]
        rows += [[*what, table, f"{size.offsets:,}", human_bytes(size.size_bytes)] for table, size in tables.items()] or [
            [*what, "-", "-", "-"]
        ]
    print_table(_SHARD_COLUMNS, rows, numeric=("shard", "epoch", "commit", "offsets", "size"), drop=("size", "offsets", "rows"))
    if replicas:
        click.echo()
        print_table(_REPLICA_COLUMNS, map(_cells, replicas), numeric=("shard", "epoch", "commit", "behind", "time behind"))


def _cells(each: "ReplicaStatus") -> list[object]:
    position = each.position
    where = ["-", "-"] if each.commits is None else [f"{position.commit:,}", f"{each.commits:,}"]
    return [each.place, each.shard, position.phase.value, position.epoch, *where, f"{each.seconds:.1f} s"]


def _document(
    changelog: str, shards: "Sequence[ShardStatus]", replicas: "Sequence[ReplicaStatus]", failures: "Sequence[StoreFailure]"
) -> dict[str, Any]:
    return {
        "changelog": changelog,
        "shards": [
            {
                "shard": master.shard,
                "epoch": master.epoch,
                "commit": master.commit,
                "time": _time(master.time_ms),
                "complete": master.complete,
                "master": master.address or None,
                "tables": {table: {"offsets": size.offsets, "bytes": size.size_bytes} for table, size in tables.items()},
            }
            for master, tables in shards
        ],
        "replicas": [
            {
                "store": each.place,
                "shard": each.shard,
                "phase": each.position.phase.value,
                "epoch": each.position.epoch,
                "commit": None if each.commits is None else each.position.commit,
                "time": None if each.commits is None else _time(each.position.commit_ms),
                "commits_behind": each.commits,
                "seconds_behind": each.seconds,
            }
            for each in replicas
        ],
        "failures": [{"store": each.place, "error": each.error} for each in failures],
    }


def _time(time_ms: int) -> str | None:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z" if time_ms else None
