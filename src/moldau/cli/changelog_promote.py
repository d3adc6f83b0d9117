"""``moldau changelog promote``: a replica becomes the master of its shard."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from moldau.cli.changelog_options import SHARD, STORE, changelog_argument, log_level_option, options_as_given
from moldau.cli.options import NAME, SECONDS, TEXT, bootstrap_option, open_cluster
from moldau.cli.output import say

if TYPE_CHECKING:
    from moldau.changelog.places import StorePlace


@click.command("promote")
@changelog_argument
@click.argument("place", metavar="STORE", type=STORE)
@click.option("--shard", metavar="SHARD", type=SHARD, default=0, show_default=True, help="Of which it is a replica.")
@click.option("--table", "tables", metavar="TABLE", type=NAME, multiple=True, help="That it publishes; may be repeated. [default: all]")
@click.option("--address", metavar="TEXT", type=TEXT, default="", help="Where the database is reached, for `moldau changelog status`.")
@click.option("--timeout", metavar="SECONDS", type=SECONDS, default=60.0, show_default=True, help="For applying what it lacks.")
@bootstrap_option
@log_level_option
def promote(
    changelog: str, place: "StorePlace", shard: int, tables: Sequence[str], address: str, timeout: float, bootstrap: str, log_level: str
) -> None:
    """Make STORE, a replica sqlite:///PATH that no process runs, the master of a shard of CHANGELOG.

    The publisher before is fenced: it can publish nothing more, and what it has committed and not published was not acknowledged. STORE
    applies all that the log has, and publishes a first commit in the next epoch. Any replica is right; the one with the highest commit
    in `moldau changelog status` is ready first. After that it is published as the master was, with `moldau changelog publish`, and the
    former master becomes a replica with `moldau changelog replicate --begin-again`.
    """
    from pathlib import Path

    from moldau.assembly.server_log import set_up_logging
    from moldau.changelog.masters import masters
    from moldau.changelog.places import PlaceError
    from moldau.changelog.sqlite.promotion import promote as make_master

    if place.kind != "sqlite":
        raise click.BadParameter(f"{place.text}: only a replica in SQLite can be promoted", param_hint="STORE")
    if not Path(place.path).exists():
        raise PlaceError(f"{place.text}: there is no such file")
    set_up_logging(log_level, "text")
    with open_cluster(bootstrap) as cluster:
        every = masters(cluster, changelog)
    if shard >= len(every):
        raise click.BadParameter(f"changelog {changelog} has shards 0 to {len(every) - 1}", param_hint="--shard")
    with options_as_given("moldau changelog replicate"):
        commit = make_master(
            place.path, bootstrap, changelog, shard, shards=len(every), tables=list(tables) or None, address=address, timeout_s=timeout
        )
    say(f"changelog {changelog}, shard {shard}: {place.text} is the master, from commit {commit} on")
