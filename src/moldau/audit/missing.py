"""Which events are missing: their guids, out of the records of the two tiers that differ.

A log and a table, or two logs, have guids that can be compared. A producer keeps none, but numbers its events: the guids of an instance are
its 8 bytes and a number that counts up. So what it sent and a log lacks is among the numbers that the log does not have, and the difference
of the two checksums, the sum of the missing guids' hashes, decides which.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from moldau.audit.verdicts import Report, SourceLine, Verdict, WindowPair, joined
from moldau.model.errors import MoldauError
from moldau.tracking.audit_record import PRODUCER_TIER
from moldau.tracking.checksum import guid_hash
from moldau.tracking.counts import CHECKSUM_MASK, window_start
from moldau.tracking.header import INSTANCE_BYTES, read_header

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster

GUIDS_MAX: Final = 2_000_000
"""Numbers that are kept at most, of all windows that differ."""
OWN_LOG: Final = ""
"""In the place of a tier: the log of the cluster that has the audit topic, for tiers without a place of their own."""
PRODUCERS: Final = (PRODUCER_TIER,)
"""As the upper tiers of a line: no guids of theirs are kept anywhere."""
_TAIL: Final = 10_000
"""Numbers after the last one in the log that may be missing too."""
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
        """An event as it is in the log; any other value is skipped."""
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
class MissingEvents:
    """What the lower tier lacks of an instance in a window: the guids as hex digits, and why others are unknown."""

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
    from moldau.client.fetched_batches import VisibleBatches, checked_batches
    from moldau.client.partition_requests import EARLIEST, LATEST, READ_COMMITTED, FetchLimits
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
            visible = VisibleBatches(fetched.aborted)
            for header, batch in checked_batches(where, fetched, position):
                if visible.shows(header, batch):
                    for record in iterate(batch, max_decompressed_bytes=_DECOMPRESSED_BYTES_MAX):
                        if record.offset >= position:
                            found.add_value(record.value)
                position = header.last_offset + 1
    return found


def wanted_places(report: Report, tables: Collection[str], clusters: Collection[str]) -> set[tuple[str, str]]:
    """Tier and topic of the events that have to be read: of tiers that have tables, or a cluster of their own, and of `OWN_LOG`."""
    found: set[tuple[str, str]] = set()
    for pair, line in lacking(report):
        *uppers, lower = (tier if tier in tables or tier in clusters else OWN_LOG for tier in (*line.upper_tiers, pair.lower_tier))
        if line.upper_tiers == PRODUCERS:
            found.add((lower, pair.topic))
        if lower != OWN_LOG and (line.upper_tiers != PRODUCERS or lower in tables):
            found |= {(tier, pair.topic) for tier in (lower, *uppers)}
    return found


def missing(report: Report, guids: Mapping[tuple[str, str], Guids], tables: Collection[str]) -> Iterator[MissingEvents]:
    """What each lower tier lacks; `guids` are those of `wanted_places`, `tables` the tiers that have tables."""
    for pair, line in lacking(report):
        window, topic, there = pair.window_start_ms, pair.topic, guids.get((pair.lower_tier, pair.topic))
        numbers: Iterable[int] | None
        if line.upper_tiers == PRODUCERS and pair.lower_tier not in tables:
            numbers = _never_arrived(line, guids[OWN_LOG, topic] if there is None else there)
            unknown = "the instance numbers events of other topics too, or the log no longer has all of them, and several are missing"
            problem = "" if numbers is not None else unknown
        elif there is not None:
            above = [guids.get((tier, topic)) or guids[OWN_LOG, topic] for tier in line.upper_tiers]
            held = there.of(window, line.instance)
            numbers = set().union(*(each.of(window, line.instance) for each in above)) - held
            unnamed = _unnamed(line, held, len(numbers))
            problem = f"{unnamed} {_no_longer_in(line.upper_tiers, tables)} and cannot be named" if unnamed else ""
        else:
            numbers, named = (
                None,
                f"--table {pair.lower_tier}=DIR names its tables, --tier-bootstrap {pair.lower_tier}=HOST:PORT its cluster",
            )
            problem = f"where is tier {pair.lower_tier}? {named}"
        found = tuple(f"{line.instance}{number:016x}" for number in sorted(numbers or ()))
        yield MissingEvents(topic, window, joined(line.upper_tiers), pair.lower_tier, line.host, found, problem)


def _unnamed(line: SourceLine, held: Collection[int], named: int) -> str:
    """How many events the lower tier lacks that the upper one no longer has: it holds the numbers `held`, and lacks `named` of the others.

    Empty if there are none. What the lower tier has counted and its log no longer holds is no loss.
    """
    count = line.upper.count - max(line.lower.count, len(held)) - named
    if count > 0:
        return f"{count:,} {'is' if count == 1 else 'are'}"
    if named or line.lower.count < line.upper.count:
        return ""
    instance = bytes.fromhex(line.instance)
    checksum = sum(guid_hash(instance + number.to_bytes(8)) for number in held) & CHECKSUM_MASK
    return "" if checksum == line.upper.checksum else "some are"


def _no_longer_in(tiers: tuple[str, ...], tables: Collection[str]) -> str:
    if tiers == PRODUCERS:
        return "not in the log"
    return " or ".join(f"no longer in the {'table' if tier in tables else 'log'} of tier {tier}" for tier in tiers)


def _never_arrived(line: SourceLine, log: Guids) -> list[int] | None:
    """The numbers that an instance has counted and the log lacks; None if they are unknown."""
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
