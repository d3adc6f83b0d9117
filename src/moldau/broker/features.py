"""The features that ApiVersions tells clients of: which levels we know, and which one holds (KIP-584).

``transaction.version`` at level 2 makes clients take part in the newer protocol of transactions: an epoch for each transaction, partitions
that are added by producing to them (KIP-890). A client that does not know of it goes on with the older one.
"""

from typing import Final, NamedTuple


class Feature(NamedTuple):
    """The levels that we know, from `least` to `most`, and the one that holds."""

    least: int
    most: int
    level: int


FEATURES: Final = {"transaction.version": Feature(0, 2, 2)}
FEATURES_EPOCH: Final = 0
"""Counts changes of the levels that hold. They do not change yet; clients ignore what has a lower epoch than they have seen."""
