"""Which producers of a cluster are mirrors': in its topic `_mirror_producers`, before they write there.

Who reads the cluster for another mirror finds so which batches may have come from elsewhere. Compacted, never deleted by time::

    key     {"producer_id", "cluster"}      the producer writes records that were in the cluster with this id
    value   {"mirror", "instance"}
"""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from moldau.mirror.merge.state_batch import json_bytes
from moldau.mirror.state.topic import append
from moldau.model.identity import TopicPartition

if TYPE_CHECKING:
    from moldau.ports.clock import Clock
    from moldau.protocol.records.record import Record
    from moldau.wire.brokers import Brokers

PRODUCERS = TopicPartition("_mirror_producers", 0)


class Announcement(NamedTuple):
    """See the module."""

    producer_id: int
    cluster: str

    def encode(self) -> bytes:
        """The key of a record."""
        return json_bytes({"producer_id": self.producer_id, "cluster": self.cluster})


def announcement_in(record: "Record") -> Announcement:
    """What a record announces. ValueError, which names its offset."""
    try:
        found = json.loads(record.key or b"")
        return Announcement(int(found["producer_id"]), str(found["cluster"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{PRODUCERS}, offset {record.offset}: not an announcement: {(record.key or b'')[:200]!r}") from error


class Announcer:
    """Announces what the producer of one process writes, once."""

    def __init__(self, target: "Brokers", mirror: str, instance: str, clock: "Clock") -> None:
        self._target = target
        self._value = json_bytes({"mirror": mirror, "instance": instance})
        self._clock = clock
        self._stored: set[Announcement] = set()

    async def announce(self, producer_id: int, clusters: Iterable[str]) -> None:
        """When this returns the producer may write records that were in these clusters. PeerError, WorldError."""
        wanted = {Announcement(producer_id, cluster) for cluster in clusters} - self._stored
        if wanted:
            records = ((each.encode(), self._value) for each in sorted(wanted))
            await append(self._target, PRODUCERS, records, self._clock.time_ms())
            self._stored |= wanted
