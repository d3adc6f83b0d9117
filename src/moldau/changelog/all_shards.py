"""Several shards that one source fills: each row is in the shard that the hash of its key names, and a transaction of the source is a
commit in each shard that it has changed.

`source` of such a commit has three members more, so that readers of several shards can put transactions together again, and a publisher
finds the last one:

* `shards`: over how many the rows are divided; it never changes,
* `transaction`: the number of the source's transaction, over all shards and from 1 on; it begins again only with a higher epoch,
* `parts`: how many shards have a commit of this transaction.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from moldau.changelog.envelope import CommitRecord
from moldau.changelog.values import ALL_SHARDS
from moldau.client.partitioning import partition_of

SHARDS: Final = "shards"
TRANSACTION: Final = "transaction"
PARTS: Final = "parts"


def shard_of(key: bytes, shards: int) -> int:
    """Of the row whose records have this key: the partition that all Kafka clients choose for it."""
    return partition_of(key, shards)


def part_source(source: Mapping[str, str | int], shards: int, transaction: int, parts: int) -> Mapping[str, str | int]:
    """`source` of the commit of one shard."""
    return {**source, SHARDS: shards, TRANSACTION: transaction, PARTS: parts}


def last_transaction(records: Iterable[CommitRecord], shards: int) -> CommitRecord | None:
    """The last transaction of the source, by the last commits of the shards that have one; its `commit` is the transaction's number.

    Where another source has made the last commit of a shard, it has the `source` of that one: what this shard has is not known any more.
    """
    found = list(records)
    if not found:
        return None
    ours = [each for each in found if each.source.get(SHARDS) == shards and TRANSACTION in each.source]
    newest = max(ours, key=lambda each: (each.epoch, each.source[TRANSACTION]), default=None)
    others = [each for each in found if each not in ours]
    shown = others[0] if others or newest is None else newest
    return CommitRecord(
        ALL_SHARDS,
        max(each.epoch for each in found),
        0 if newest is None else int(newest.source[TRANSACTION]),
        shown.time_ms,
        shown.counts,
        shown.source,
    )
