"""``moldau changelog publish``: the publisher of a database that other programs write."""

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from moldau.changelog.values import ALL_SHARDS
from moldau.cli.changelog_options import SHARD_OR_ALL, SHARDS_MAX, STORE, changelog_argument, log_level_option, options_as_given
from moldau.cli.interruptions import Interruptions
from moldau.cli.options import NAME, TEXT, bootstrap_option, open_cluster
from moldau.cli.output import say

if TYPE_CHECKING:
    from moldau.changelog.places import StorePlace


@click.command("publish")
@changelog_argument
@click.option("--from", "place", metavar="DATABASE", type=STORE, required=True, help="sqlite:///PATH or postgresql://...")
@click.option(
    "--table",
    "tables",
    metavar="TABLE",
    type=NAME,
    multiple=True,
    help="To publish; may be repeated. [default: as at the start before; at the first one SQLite: all]",
)
@click.option(
    "--shard",
    metavar="SHARD",
    type=SHARD_OR_ALL,
    default=0,
    show_default=True,
    help="That the database is; PostgreSQL: all: its rows are divided.",
)
@click.option("--shards", metavar="COUNT", type=click.IntRange(1, SHARDS_MAX), default=1, show_default=True, help="Of the changelog.")
@click.option("--address", metavar="TEXT", type=TEXT, default="", help="Where the database is reached, for `moldau changelog status`.")
@click.option("--once", is_flag=True, help="SQLite: publish what is committed now, and end.")
@click.option(
    "--republish", type=click.Choice(["never", "lost", "now"]), default="never", show_default=True, help="PostgreSQL: all rows again."
)
@click.option("--as-text", metavar="TABLE.COLUMN", type=NAME, multiple=True, help="PostgreSQL: publish a column as text; may be repeated.")
@bootstrap_option
@log_level_option
def publish(
    changelog: str,
    place: "StorePlace",
    tables: Sequence[str],
    shard: int,
    shards: int,
    address: str,
    once: bool,
    republish: str,
    as_text: Sequence[str],
    bootstrap: str,
    log_level: str,
) -> None:
    """Publish DATABASE as a shard of CHANGELOG: the rows that it has, and then each transaction, until SIGTERM or Ctrl-C.

    With `--shard all --shards 4` the rows of PostgreSQL are divided over four shards by the hash of their keys.

    In SQLite triggers note the changes of all writers; docs/changelog.md. PostgreSQL has them in its log; docs/changelog-postgres.md has
    what it needs. While database or brokers are away it is tried again. A second publisher of the shard ends the first one.

    \b
      moldau changelog publish shop --from sqlite:///shop.db
      moldau changelog publish shop --from postgresql://moldau@db/shop --table orders --table sales.items
      moldau changelog publish shop --from postgresql://moldau@db/shop
    """
    from moldau.assembly.server_log import set_up_logging

    _check(place, shard, shards, once=once, republish=republish, as_text=as_text)
    set_up_logging(log_level, "text")
    with open_cluster(bootstrap):
        pass
    with options_as_given():
        if place.kind == "sqlite":
            _publish_sqlite(place, bootstrap, changelog, shard, shards, tables, address, once=once)
        else:
            _publish_postgres(place, bootstrap, changelog, shard, shards, tables, address, republish, as_text)


def _check(place: "StorePlace", shard: int, shards: int, *, once: bool, republish: str, as_text: Sequence[str]) -> None:
    match place.kind:
        case "sqlite" if shard == ALL_SHARDS:
            raise click.UsageError("--shard all is for PostgreSQL")
        case "postgresql" if shard == ALL_SHARDS and shards == 1:
            raise click.UsageError("over how many shards rows are divided has to be said: --shard all --shards COUNT, 2 or more")
        case "sqlite" if republish != "never" or as_text:
            raise click.UsageError("--republish and --as-text are for PostgreSQL")
        case "postgresql" if once:
            raise click.UsageError("--once is for SQLite")
        case "sqlite" | "postgresql":
            pass
        case _:
            problem = f"{place.text}: only SQLite and PostgreSQL can be published: sqlite:///PATH, postgresql://..."
            raise click.BadParameter(problem, param_hint="--from")


def _publish_sqlite(
    place: "StorePlace",
    bootstrap: str,
    changelog: str,
    shard: int,
    shards: int,
    tables: Sequence[str],
    address: str,
    *,
    once: bool,
) -> None:
    from pathlib import Path

    from moldau.changelog.places import PlaceError
    from moldau.changelog.sqlite import Source

    if not Path(place.path).exists():
        raise PlaceError(f"{place.text}: there is no such file")
    stop = threading.Event()
    with (
        Interruptions() as interruptions,
        Source(place.path, bootstrap, changelog, shard, shards=shards, tables=list(tables) or None, address=address) as source,
    ):
        if once:
            source.publish()
        else:
            interruptions.on_stop = stop.set
            say(f"changelog {changelog}, shard {shard}: publishing {place.text}, until Ctrl-C")
            source.run(stop)
        say(f"changelog {changelog}, shard {shard}: commit {source.commit} is in the log")
        interruptions.done = True


def _publish_postgres(
    place: "StorePlace",
    bootstrap: str,
    changelog: str,
    shard: int,
    shards: int,
    tables: Sequence[str],
    address: str,
    republish: str,
    as_text: Sequence[str],
) -> None:
    from moldau.changelog.naming import shard_text
    from moldau.changelog.postgres.publication import published_tables
    from moldau.changelog.postgres.published_keys import PublishedKeys
    from moldau.changelog.postgres.sessions import Server
    from moldau.changelog.postgres.slots import slot_name
    from moldau.changelog.postgres.source import Choices, PostgresSource, Republish
    from moldau.changelog.publisher import Publisher

    tables = tables or published_tables(Server(place.path), slot_name(changelog))
    if not tables:
        raise click.UsageError("which tables of PostgreSQL are published has to be said at the first start: --table TABLE")
    stop, subject = threading.Event(), f"changelog {changelog}, {shard_text(shard)}"
    publisher = Publisher(bootstrap, changelog, shard, shards=shards)
    choices = Choices(republish=Republish(republish), as_text=as_text, address=address)
    source = PostgresSource(place.path, tables, publisher, PublishedKeys(bootstrap, changelog, shard), choices)
    try:
        with Interruptions() as interruptions:
            interruptions.on_stop = stop.set
            say(f"{subject}: publishing {', '.join(tables)}, until Ctrl-C")
            source.run(stop)
            interruptions.done = True
    finally:
        publisher.close()
    what = "transaction" if shard == ALL_SHARDS else "commit"
    say(f"{subject}: {what} {source.statistics().commit} is in the log")
