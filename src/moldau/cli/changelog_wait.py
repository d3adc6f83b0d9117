"""``moldau changelog wait``: until a replica has a commit."""

import time
from typing import TYPE_CHECKING

import click

from moldau.cli.changelog_options import SHARD, STORE, changelog_argument
from moldau.cli.exit_codes import UNDECIDED
from moldau.cli.options import SECONDS
from moldau.cli.output import say

if TYPE_CHECKING:
    from moldau.changelog.places import StorePlace
    from moldau.changelog.store import Position

_PAUSE_S = 0.05


@click.command("wait")
@changelog_argument
@click.option("--in", "place", metavar="STORE", type=STORE, required=True, help="The replica.")
@click.option("--shard", metavar="SHARD", type=SHARD, default=0, show_default=True, help="Of the changelog.")
@click.option("--commit", metavar="NUMBER", type=click.IntRange(min=1), required=True, help="Which the replica is to have.")
@click.option("--timeout", metavar="SECONDS", type=SECONDS, default=60.0, show_default=True, help="Wait so long at most: 90, 5m, 1h.")
def wait(changelog: str, place: "StorePlace", shard: int, commit: int, timeout: float) -> None:
    """Wait until STORE, a replica that another process keeps, has a commit of CHANGELOG: then it has what was written up to that.

    It is a store as `moldau changelog status` takes them, but no DuckDB database while its replica runs, which no other process can read.
    Exit codes: 0 it has the commit, or a later one; 3 it has not after --timeout; 1 it cannot be read.

    \b
      moldau changelog wait shop --commit 17 --in sqlite:///copy.db && python report.py
    """
    from moldau.changelog.places import open_store
    from moldau.changelog.store import Phase

    end = time.monotonic() + timeout
    store = open_store(place, must_exist=True)
    try:
        while True:
            position = store.look(changelog).get(shard)
            if position is not None and position.phase is Phase.FOLLOWING and position.commit >= commit:
                say(f"{place.text}: shard {shard} is at commit {position.commit}")
                return
            if time.monotonic() >= end:
                say(f"Error: {place.text}: after {timeout:g} s commit {commit} of shard {shard} is not there: {_state(position)}", err=True)
                click.get_current_context().exit(UNDECIDED)
            time.sleep(_PAUSE_S)
    finally:
        store.close()


def _state(position: "Position | None") -> str:
    return "the store has no position of it" if position is None else f"it is {position.phase.value}, at commit {position.commit}"
