"""A process that publishes a database of PostgreSQL until it is killed: [--shards COUNT] CONNINFO BOOTSTRAP CHANGELOG TABLE...

`MOLDAU_TEST_REPUBLISH` in its environment is when it publishes all of it again: never, lost, now.
"""

import argparse
import os
import threading
import time

from moldau.changelog.postgres.published_keys import PublishedKeys
from moldau.changelog.postgres.source import Choices, PostgresSource, Republish, SourceState
from moldau.changelog.publisher import Publisher
from moldau.changelog.values import ALL_SHARDS

REPUBLISH = "MOLDAU_TEST_REPUBLISH"


def main(conninfo: str, bootstrap: str, changelog: str, tables: list[str], shards: int) -> None:
    shard = ALL_SHARDS if shards > 1 else 0
    publisher = Publisher(bootstrap, changelog, shard, shards=shards, transaction_timeout_ms=20_000)
    choices = Choices(republish=Republish[os.environ.get(REPUBLISH, "never").upper()])
    source = PostgresSource(conninfo, tables, publisher, PublishedKeys(bootstrap, changelog, shard), choices)
    print("runs", flush=True)
    threading.Thread(target=tell_streaming, args=(source,), daemon=True).start()
    source.run(threading.Event())


def tell_streaming(source: PostgresSource) -> None:
    while source.statistics().state is not SourceState.STREAMING:
        time.sleep(0.01)
    print("streams", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("conninfo", "bootstrap", "changelog"):
        parser.add_argument(name)
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--shards", type=int, default=1)
    main(**vars(parser.parse_args()))
