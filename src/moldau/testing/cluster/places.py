"""What the calls of a test's cluster name: brokers by their ids, and ZooKeeper. A call that could do nothing is refused (ValueError)."""

import math
from collections.abc import Collection, Iterable, Sequence

from moldau.testing.cluster.forwarder import Pair

Place = int | str
TREE = "zookeeper"
"""The name of ZooKeeper where brokers are cut off from it."""


def known_brokers(given: Iterable[Place], broker_ids: Collection[int]) -> None:
    """ValueError unless they are brokers of the cluster, at least one."""
    ids = list(given)
    every = f"the brokers are {', '.join(map(str, broker_ids))}"
    if not ids:
        raise ValueError(f"no broker is named; {every}")
    for each in ids:
        if each not in broker_ids:
            raise ValueError(f"there is no broker {each!r} in this cluster; {every}")


def pairs(
    first: Place | Sequence[Place], second: Place | Sequence[Place], broker_ids: Collection[int], *, has_tree: bool, both: bool
) -> list[Pair]:
    """Each of the first with each of the second; `both`: each of the second with each of the first, too. ValueError."""
    sides = [[given] if isinstance(given, int | str) else list(given) for given in (first, second)]
    for side in sides:
        if TREE in side and not has_tree:
            raise ValueError("the cluster was made without `zookeeper`, from which its brokers could be cut off")
        if TREE not in side or len(side) > 1:
            known_brokers((each for each in side if each != TREE), broker_ids)
    for each in sides[0]:
        if each in sides[1]:
            raise ValueError(
                f"{each!r} is on both sides, and has no connection to itself; the brokers are {', '.join(map(str, broker_ids))}"
            )
    found = [(str(one), str(other)) for one in sides[0] for other in sides[1]]
    return [*found, *((other, one) for one, other in found)] if both else found


def check_pace(delay_s: float, bytes_per_s: float) -> None:
    """ValueError for numbers that are negative or without an end."""
    for name, value in (("delay_s", delay_s), ("bytes_per_s", bytes_per_s)):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name}={value}: a number from 0 on is needed; `partition` holds back everything")
