"""Damage to what a process has left on its disk: never to a record that is known to be synced, which no log could survive."""

from collections.abc import Callable, Collection, Iterator
from random import Random

from moldau.testing.simulation.process import Host
from moldau.testing.simulation.reader import logs_on, unsynced_batches

_CHECKED_FROM = 21
"""Where a batch begins to be covered by its checksum."""
_DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot")
Harm = Callable[[Host, Random, str, int, int], object]
"""What is done to a file, at a position, within a length."""


def damage(host: Host, topics: Collection[str], random: Random, harm: Harm) -> list[str]:
    """Harm a record of these topics that is not known to be synced, or an index or a snapshot, which can be made again; what was hurt."""
    disk = host.disk
    places = [
        (log.partition, place)
        for log in logs_on(disk, host.directories)
        if log.partition.rpartition("-")[0] in topics
        for place in unsynced_batches(disk, log)
    ]
    if places and random.random() < 0.7:
        partition, (path, position, size) = random.choice(places)
        disk.damaged[partition] = None
        harm(host, random, path, position + _CHECKED_FROM, size - _CHECKED_FROM)
        return ["records damaged"]
    if derived := [path for path in _derived_files(host) if disk.contents(path)]:
        path = random.choice(derived)
        harm(host, random, path, random.randrange(len(disk.contents(path))), 1)
        return ["an index or a snapshot damaged"]
    return []


def flip(host: Host, random: Random, path: str, position: int, length: int) -> None:
    """Change a bit."""
    host.disk.flip(path, position + random.randrange(length), random.randrange(8))


def misdirect(host: Host, random: Random, path: str, position: int, _length: int) -> None:
    """Put a piece of this or another file there."""
    host.disk.misdirect(random.choice([path, *_derived_files(host)]), path, position)


def _derived_files(host: Host) -> Iterator[str]:
    for log in logs_on(host.disk, host.directories):
        for name in host.disk.names(log.path):
            if name.endswith(_DERIVED):
                yield f"{log.path}/{name}"
