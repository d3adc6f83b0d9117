"""Which events are missing: their guids, out of the records of the two tiers that differ.

A log and a table, or two logs, have guids that can be compared. A producer keeps none, but numbers its events: the guids of an instance are
its 8 bytes and a number that counts up. So what it sent and a log lacks is among the numbers that the log does not have, and the difference
of the two checksums, the sum of the missing guids' hashes, says which.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from moldau.audit.verdicts import Report, SourceLine, Verdict, WindowPair
from moldau.model.errors import MoldauError
from moldau.tracking.counts import CHECKSUM_MASK, window_start
from moldau.tracking.header import INSTANCE_BYTES, guid_hash, read_header

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster

GUIDS_MAX: Final = 2_000_000
"""So many numbers are kept at most, of all windows that differ."""
_TAIL: Final = 10_000
"""So many numbers behind the last one that the log has may be missing too."""
_DECOMPRESSED_BYTES_MAX: Final = 256 << 20

Numbers = dict[tuple[int, str], set[int]]
"""Of events, by window (its start in ms) and instance: what follows the instance in their guids."""


class TooManyGuidsError(MoldauError):
    """The windows that differ have more events than are compared at once."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic}: the windows that differ have more than {GUIDS_MAX:,} events; --since and --topic choose fewer")


@dataclass(slots=True)
class Guids:
    """The guids of some instances in one topic, as one tier has them."""

    topic: str
    wanted: frozenset[str]
    numbers: Numbers = field(default_factory=dict)
    count: int = 0

    def add(self, time_ms: int, guid: bytes) -> None:
        """An event. TooManyGuidsError."""
        instance = guid[:INSTANCE_BYTES].hex()
        if instance in self.wanted:
            self.numbers.setdefault((window_start(time_ms), instance), set()).add(int.from_bytes(guid[INSTANCE_BYTES:]))
            self.count += 1
            if self.count > GUIDS_MAX:
                raise TooManyGuidsError(self.topic)

    def add_value(self, value: bytes | None) -> None:
        """An event as it stands in the log; what is none is passed over."""
        header = read_header(value)
        if header is not None:
            self.add(header.time_ms, header.guid)

    def of(self, window_start_ms: int, instance: str) -> set[int]:
        """In one window."""
        return self.numbers.get((window_start_ms, instance), set())

    def of_instance(self, instance: str) -> set[int]:
        """In all windows."""
        return set().union(*(numbers for (_, each), numbers in self.numbers.items() if each == instance))


@dataclass(frozen=True, slots=True)
class Missing:
    """What the lower tier lacks of an instance in a window: the guids as hex digits, or why they cannot be told."""

    topic: str
    window_start_ms: int
    upper_tier: str
    lower_tier: str
    host: str
    guids: tuple[str, ...]
    problem: str = ""


def lacking(report: Report) -> Iterator[tuple[WindowPair, SourceLine]]:
    """The instances and windows of which the lower tier has not all."""
    for pair in report.pairs:
        for line in pair.sources:
            if line.verdict in (Verdict.LOSS, Verdict.HIDDEN_LOSS, Verdict.NOT_COUNTED) and line.lower.count <= line.upper.count:
                yield pair, line


def wanted_instances(report: Report) -> dict[str, frozenset[str]]:
    """By topic, the instances whose guids have to be read."""
    found: dict[str, set[str]] = {}
    for pair, line in lacking(report):
        found.setdefault(pair.topic, set()).add(line.instance)
    return {topic: frozenset(instances) for topic, instances in found.items()}


def guids_of_log(cluster: "Cluster", topic: str, instances: frozenset[str]) -> Guids:
    """Read all records of a topic. TooManyGuidsError; WorldError, PeerError."""
    from moldau.client.checked import checked_batches
    from moldau.client.partition_requests import EARLIEST, LATEST, READ_COMMITTED, FetchLimits
    from moldau.client.visible import Visible
    from moldau.model.identity import TopicPartition
    from moldau.protocol.records.batch import iterate

    found = Guids(topic, instances)
    partitions = [TopicPartition(topic, each.partition) for each in cluster.topic(topic).partitions]
    firsts = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = cluster.list_offsets(dict.fromkeys(partitions, LATEST), isolation_level=READ_COMMITTED)
    limits = FetchLimits(max_wait_ms=100, max_bytes=8 << 20, partition_max_bytes=8 << 20, isolation_level=READ_COMMITTED)
    for where in partitions:
        position = int(firsts[where].offset)
        while position < ends[where].offset:
            fetched = cluster.fetch(topic, where.partition, position, limits)
            visible = Visible(fetched.aborted)
            for header, batch in checked_batches(where, fetched, position):
                if visible.shows(header, batch):
                    for record in iterate(batch, max_decompressed_bytes=_DECOMPRESSED_BYTES_MAX):
                        if record.offset >= position:
                            found.add_value(record.value)
                position = header.last_offset + 1
    return found


def missing(report: Report, log: Mapping[str, Guids], others: Mapping[tuple[str, str], Guids]) -> Iterator[Missing]:
    """What each lower tier lacks; `log` by topic, and of tiers that are other places (tables) `others` by tier and topic."""
    for pair, line in lacking(report):
        there = others.get((pair.lower_tier, pair.topic))
        numbers: Iterable[int] | None
        if there is not None:
            in_log = log[pair.topic].of(pair.window_start_ms, line.instance)
            numbers, problem = in_log - there.of(pair.window_start_ms, line.instance), ""
        elif pair.upper_tier == "producer":
            numbers = _never_arrived(line, log[pair.topic])
            problem = "" if numbers is not None else "the instance numbers events of other topics too, and several are missing"
        else:
            numbers, problem = None, f"where is tier {pair.lower_tier}? --table {pair.lower_tier}=DIR names its tables"
        guids = tuple(f"{line.instance}{number:016x}" for number in sorted(numbers or ()))
        yield Missing(pair.topic, pair.window_start_ms, pair.upper_tier, pair.lower_tier, line.host, guids, problem)


def _never_arrived(line: SourceLine, log: Guids) -> list[int] | None:
    """The numbers that an instance has counted and the log lacks; None if they cannot be told."""
    seen = log.of_instance(line.instance)
    instance = bytes.fromhex(line.instance)
    last = max(seen, default=-1)
    if last - len(seen) > GUIDS_MAX:
        return None
    lacks = [number for number in range(last + 1) if number not in seen]
    wanted, checksum = line.upper.count - line.lower.count, (line.upper.checksum - line.lower.checksum) & CHECKSUM_MASK

    def digest(number: int) -> int:
        return guid_hash(instance + number.to_bytes(8))

    if wanted == 1:
        return next(([number] for number in [*lacks, *range(last + 1, last + 1 + _TAIL)] if digest(number) == checksum), None)
    for chosen in (lacks, [*lacks, *range(last + 1, last + 1 + wanted - len(lacks))]):
        if len(chosen) == wanted and sum(map(digest, chosen)) & CHECKSUM_MASK == checksum:
            return chosen
    return None
