"""``moldau changelog replicate``: a replica in a store."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from moldau.cli.changelog_options import SHARD, STORE, changelog_argument, log_level_option, options_as_given
from moldau.cli.interruptions import Interruptions
from moldau.cli.options import NAME, SECONDS, bootstrap_option, open_cluster
from moldau.cli.output import say

if TYPE_CHECKING:
    from moldau.changelog.places import StorePlace
    from moldau.changelog.replica import Replica


@click.command("replicate")
@changelog_argument
@click.option(
    "--to", "place", metavar="STORE", type=STORE, required=True, help="Where: sqlite:///PATH, duckdb:///PATH, postgresql://..., DIR."
)
@click.option("--shard", "shards", metavar="SHARD", type=SHARD, multiple=True, help="Only this one; may be repeated. [default: all]")
@click.option("--table", "tables", metavar="TABLE", type=NAME, multiple=True, help="Only this one; may be repeated. [default: all]")
@click.option("--once", is_flag=True, help="Apply what the log has now, and end.")
@click.option("--begin-again", is_flag=True, help="Remove the rows of the shards, and load what the log has.")
@click.option("--timeout", metavar="SECONDS", type=SECONDS, default=3600.0, show_default=True, help="With --once: so long at most.")
@bootstrap_option
@log_level_option
def replicate(
    changelog: str,
    place: "StorePlace",
    shards: Sequence[int],
    tables: Sequence[str],
    once: bool,
    begin_again: bool,
    timeout: float,
    bootstrap: str,
    log_level: str,
) -> None:
    """Keep a replica of CHANGELOG in STORE, until SIGTERM or Ctrl-C: each commit once, as a whole.

    STORE is a database file, a database of PostgreSQL, or a directory of Delta tables, and is made where it is missing. Of a changelog with
    several shards it has tables with a column _shard, unless one --shard is named: then its tables have the columns of the source, and in
    SQLite it can be promoted. Killed and started again, it continues where the store is.

    \b
      moldau changelog replicate shop --to sqlite:///copy.db
      moldau changelog replicate shop --to lake/shop --once
    """
    from moldau.assembly.server_log import set_up_logging
    from moldau.changelog.masters import masters
    from moldau.changelog.places import open_store
    from moldau.changelog.replica import Replica

    set_up_logging(log_level, "text")
    with open_cluster(bootstrap) as cluster:
        every = masters(cluster, changelog)
    if shards and max(shards) >= len(every):
        raise click.BadParameter(f"changelog {changelog} has shards 0 to {len(every) - 1}", param_hint="--shard")
    wanted = sorted(set(shards)) or [each.shard for each in every]
    store = open_store(place, sharded=len(every) > 1 and len(set(shards)) != 1)
    only = list(tables) or None
    with Interruptions() as interruptions, options_as_given():
        with Replica(bootstrap, changelog, store, shards=wanted, tables=only, begin_again=begin_again) as replica:
            if once:
                for shard in wanted:
                    if every[shard].commit:
                        replica.wait_for(shard, every[shard].commit, timeout)
            else:
                interruptions.on_stop = replica.stop
                say(f"changelog {changelog}: replica in {place.text}, until Ctrl-C")
                replica.run()
            _report(changelog, replica, wanted)
        interruptions.done = True


def _report(changelog: str, replica: "Replica", shards: Sequence[int]) -> None:
    for shard in shards:
        position = replica.position(shard)
        if position is not None:
            say(f"changelog {changelog}, shard {shard}: {position.phase.value}, commit {position.commit}")
