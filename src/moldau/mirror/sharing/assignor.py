"""Which member of a mirror's group gets which partitions: balanced by bytes a second, with few moves.

* A partition stays with its owner unless the owner has more than `IMBALANCE` above the mean. Then the owner is brought down to the mean, as
  far as moves help: with the partition its receiver has clearly less than the owner had (`GAIN`).
* At most `MOVED_MAX` of the load leaves its owners in one generation, or one partition where each is more than that.
* What leaves an owner is assigned to no member in this generation. The owner revokes it and rejoins, and the next generation gives it away
  (KIP-429). What has no owner is given to the member with the least load, the largest first.
* Of several owners the one of the latest generation has the partition. Of two in one generation neither has: both revoke it.

For example, a member has four partitions of 10 MB/s, and a second one joins. The mean is 20, so two partitions have to move. A fifth of the
load is 8, so they move one by one: the first generation takes one, the second gives it away and takes another, which the third gives away.

Each move lowers the sum of the squares of the loads, so moves end where rates are constant. An assignment that is computed from nothing in
each generation, as range and round-robin are, moves most partitions when a member joins.
"""

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from typing import TypeVar

from moldau.mirror.sharing.shares import Ownership, Share

M = TypeVar("M")

IMBALANCE = 0.2
"""How far above the mean of the members' loads a member may be before partitions leave it."""
GAIN = 0.1
"""How much less than the owner had, as a fraction of the mean, a receiver has to have: a move pauses a partition for a moment."""
MOVED_MAX = 0.2
"""How much of the load may leave its owners in one generation."""
IDLE_BYTES_S = 1000.0
"""The least that a partition weighs: each takes a place in requests, and idle ones are to spread by their number."""


def weights_of(rates: Mapping[Share, float | None]) -> dict[Share, float]:
    """What each partition weighs in bytes a second, in order. Where no rate is known it is the mean of those that are."""
    known = [rate for _, rate in sorted(rates.items()) if rate is not None]
    mean = sum(known) / len(known) if known else 0.0
    return {share: max(mean if rate is None else rate, IDLE_BYTES_S) for share, rate in sorted(rates.items())}


def assign(weights: Mapping[Share, float], members: Mapping[M, Ownership]) -> dict[M, list[Share]]:
    """What each member gets of the partitions, which are given in order. The order of `members` breaks ties."""
    if not members:
        return {}
    owners = _owners(members.values())
    owned: list[list[Share]] = [[] for _ in members]
    unowned = []
    for share in weights:
        place = owners.get(share, _UNOWNED)
        if place == _UNOWNED:
            unowned.append(share)
        elif place != _CONTESTED:
            owned[place].append(share)
    loads = [(sum(weights[share] for share in part), place) for place, part in enumerate(owned)]
    given = _give(weights, unowned, loads)
    _take(weights, owned, loads)
    return {member: sorted(owned[place] + given[place]) for place, member in enumerate(members)}


_UNOWNED, _CONTESTED = -1, -2


def _owners(members: Iterable[Ownership]) -> dict[Share, int]:
    """The place of each partition's owner among the members, or `_CONTESTED`."""
    owners: dict[Share, tuple[int, int]] = {}
    for place, ownership in enumerate(members):
        for share in ownership.shares:
            newest, _ = owners.get(share, (-2, _UNOWNED))
            if ownership.generation_id > newest:
                owners[share] = ownership.generation_id, place
            elif ownership.generation_id == newest:
                owners[share] = newest, _CONTESTED
    return {share: place for share, (_, place) in owners.items()}


def _give(weights: Mapping[Share, float], unowned: list[Share], loads: list[tuple[float, int]]) -> list[list[Share]]:
    """Give away what has no owner; `loads`, with the members' places, become a heap with it."""
    given: list[list[Share]] = [[] for _ in loads]
    heapify(loads)
    for share in sorted(unowned, key=weights.__getitem__, reverse=True):
        load, place = loads[0]
        given[place].append(share)
        heapreplace(loads, (load + weights[share], place))
    return given


def _take(weights: Mapping[Share, float], owned: list[list[Share]], loads: list[tuple[float, int]]) -> None:
    """Take what is too much from the parts of their owners, the one with the most first; `loads` are a heap."""
    mean = sum(weights.values()) / len(loads)
    most = mean * (1 + IMBALANCE)
    left = sum(weights.values()) * MOVED_MAX
    is_first = True
    receivers = loads.copy()  # with what is planned for them; owners that partitions leave are above the mean, and so never the least

    def may_leave(weight: float, load: float, bound: float) -> bool:
        return weight <= bound and receivers[0][0] + weight < load - mean * GAIN

    donors = [(-load, place, 0) for load, place in loads if load > most]
    heapify(donors)
    for _, place, _ in donors:
        owned[place].sort(key=weights.__getitem__, reverse=True)
    while donors:
        negative, place, at = heappop(donors)
        load, part = -negative, owned[place]
        while at < len(part) and not may_leave(weights[part[at]], load, min(load - mean, left)):
            at += 1  # nor may it later: its owner has less then, and receivers have more
        if at == len(part):  # the smallest is larger than what is above the mean, or than what may still move
            at -= 1
            if not part or load <= most or not may_leave(weights[part[at]], load, inf if is_first else left):
                continue
        weight = weights[part.pop(at)]
        left, is_first = left - weight, False
        least, receiver = receivers[0]
        heapreplace(receivers, (least + weight, receiver))
        if load - weight > mean:
            heappush(donors, (weight - load, place, at))
