"""What the topics of the coordinators say, read by a slow reader from the disks' bytes and compared with what the coordinators show.

Written apart from the product, after ``docs/formats/consumer-offsets.md`` and ``docs/formats/transaction-state.md``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from struct import Struct
from typing import Any, NamedTuple

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from moldau.protocol.messages.transaction_admin import DescribeTransactionsRequest
from moldau.testing.simulation.disk import SimulatedDisk
from moldau.testing.simulation.invariants import InvariantError
from moldau.testing.simulation.power_cuts import OFFSETS, TRANSACTIONS
from moldau.testing.simulation.process import Host
from moldau.testing.simulation.reader import bases_of, folders_of
from moldau.testing.simulation.simulation import Simulation
from moldau.testing.simulation.tree import SimulatedTree
from moldau.testing.simulation.tree_view import partitions_in
from moldau.wire.brokers import Brokers, CoordinatorType

_BATCH = Struct(">qiiBIhiqqqhii")
"""Up to the number of records: base offset, length, epoch, magic, checksum, attributes, last delta, times, producer, sequence, count."""
_LENGTH_FROM, _RECORDS_FROM = 12, 61
_COMPRESSED, _TRANSACTIONAL, _CONTROL = 7, 16, 32
_SHORT, _PARTITION = Struct(">h"), Struct(">i")
_OFFSET = Struct(">hq")
_TRANSACTION = Struct(">hqhib")
_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
_COMMIT = 1
_FETCH_VERSION = 9
_AGREE_S = 60.0
"""How long what was written may take to be shown."""
_INSIST_S = 60.0

Place = tuple[str, str, int]
"""Group, topic, partition."""


class StateRecord(NamedTuple):
    """One record of a log."""

    offset: int
    attributes: int
    """Of its batch."""
    producer_id: int
    key: bytes
    value: bytes | None


class DiskLog(NamedTuple):
    """The log of a partition on a disk."""

    disk: SimulatedDisk
    path: str


class ReplayedState(NamedTuple):
    """What the logs say."""

    offsets: dict[Place, int]
    transactions: dict[str, tuple[str, int, int]]
    """State, producer id and epoch."""


def replay(logs: Iterable[DiskLog]) -> ReplayedState:
    """Read the topics of the coordinators from their beginning, each of their partitions from one replica."""
    found = ReplayedState({}, {})
    for disk, path in logs:
        topic = path.rpartition("/")[2].rpartition("-")[0]
        if topic == OFFSETS:
            found.offsets.update(_offsets(_records(disk, path)))
        elif topic == TRANSACTIONS:
            _replay_transactions(_records(disk, path), found.transactions)
    return found


def logs_of(host: Host) -> Iterator[DiskLog]:
    """All logs of a host."""
    for directory in host.directories:
        for folder in folders_of(host.disk, directory):
            yield DiskLog(host.disk, f"{directory}/{folder}")


def logs_of_leaders(tree: SimulatedTree, hosts: Mapping[int, Host]) -> Iterator[DiskLog]:
    """The log of each partition of a cluster as its leader has it."""
    for partition in partitions_in(tree):
        host = None if partition.state is None else hosts.get(partition.state.leader)
        if host is not None:
            folder = f"{partition.topic}-{partition.number}"
            yield from (log for log in logs_of(host) if log.path.rpartition("/")[2] == folder)


def _offsets(records: Iterator[StateRecord]) -> dict[Place, int]:
    """A plain offset counts at once, one of a transaction from its marker on; of two that count the later in the log stays."""
    counted: dict[Place, tuple[int, int]] = {}
    waiting: dict[int, dict[Place, tuple[int, int]]] = {}
    for record in records:
        if record.attributes & _CONTROL:
            ended = waiting.pop(record.producer_id, {})
            if _SHORT.unpack_from(record.key, _SHORT.size)[0] == _COMMIT:
                for place, entry in ended.items():
                    counted[place] = max(counted.get(place, entry), entry)
            continue
        if _SHORT.unpack_from(record.key)[0] > 1:
            continue  # a group
        group, position = _text(record.key, _SHORT.size)
        topic, position = _text(record.key, position)
        place = group, topic, _PARTITION.unpack_from(record.key, position)[0]
        if record.value is None:
            counted.pop(place, None)
            for undecided in waiting.values():
                undecided.pop(place, None)
            continue
        entry = record.offset, _OFFSET.unpack_from(record.value)[1]
        if record.attributes & _TRANSACTIONAL:
            waiting.setdefault(record.producer_id, {})[place] = entry
        else:
            counted[place] = entry
    return {place: offset for place, (_, offset) in counted.items()}


def _replay_transactions(records: Iterator[StateRecord], transactions: dict[str, tuple[str, int, int]]) -> None:
    for record in records:
        name, _ = _text(record.key, _SHORT.size)
        if record.value is None:
            transactions.pop(name, None)
        else:
            _, producer_id, epoch, _, state = _TRANSACTION.unpack_from(record.value)
            transactions[name] = _STATES[state], producer_id, epoch


def _records(disk: SimulatedDisk, path: str) -> Iterator[StateRecord]:
    for base in bases_of(disk, path):
        data = disk.contents(f"{path}/{base:020}.log")
        position = 0
        while position < len(data):
            first, length, _, _, _, attributes, _, _, _, producer_id, _, _, count = _BATCH.unpack_from(data, position)
            assert not attributes & _COMPRESSED, f"{path}: the batch at offset {first} is compressed"
            at = position + _RECORDS_FROM
            for _ in range(count):
                size, at = _number(data, at)
                end = at + size
                _, at = _number(data, at + 1)  # after the attributes: the time
                delta, at = _number(data, at)
                key, at = _bytes(data, at)
                value, at = _bytes(data, at)
                yield StateRecord(first + delta, attributes, producer_id, key or b"", value)
                at = end
            position += _LENGTH_FROM + length


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag number of variable length."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value >> 1 ^ -(value & 1), at
        shift += 7


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _number(data, at)
    return (None, at) if length < 0 else (data[at : at + length], at + length)


def _text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _SHORT.unpack_from(data, at)
    at += _SHORT.size
    return data[at : at + length].decode(), at + length


async def check_coordinators(simulation: Simulation, logs: Callable[[], Iterable[DiskLog]]) -> None:
    """Compare what the coordinators show with what their topics say in these logs.

    InvariantError if they do not agree, once what they write has been written.
    """
    brokers = Brokers(simulation.client("auditor"))
    until = simulation.schedule.now + _AGREE_S
    while True:
        said = replay(logs())
        shown = ReplayedState(await _offsets_shown(brokers, said), await _transactions_shown(brokers, said))
        if said == shown:
            break
        if simulation.schedule.now > until:
            raise InvariantError(f"coordinators: {_difference(said.offsets, shown.offsets) or _difference(*_transactions(said, shown))}")
        await simulation.sleep(1.0)
    brokers.close()


def _transactions(said: ReplayedState, shown: ReplayedState) -> tuple[Any, Any]:
    return said.transactions, shown.transactions


def _difference(said: dict[Any, Any], shown: dict[Any, Any]) -> str:
    keys = [*said, *(key for key in shown if key not in said)]
    return "; ".join(
        f"{key} is {said.get(key)} in the log and {shown.get(key)} for clients" for key in keys if said.get(key) != shown.get(key)
    )


async def _offsets_shown(brokers: Brokers, said: ReplayedState) -> dict[Place, int]:
    found: dict[Place, int] = {}
    for group_id in dict.fromkeys(place[0] for place in said.offsets):

        async def ask(group_id: str = group_id) -> Any:
            kind, request = CoordinatorType.GROUP, OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id, topics=None)])
            response = await brokers.ask_coordinator(kind, group_id, ApiKey.OFFSET_FETCH, request, version=_FETCH_VERSION)
            (group,) = response.groups
            brokers.check_coordinator(kind, group_id, group.error_code)
            return group

        for topic in (await brokers.insist(ask, _INSIST_S)).topics:
            for partition in topic.partitions:
                found[group_id, topic.name, partition.partition_index] = partition.committed_offset
    return found


async def _transactions_shown(brokers: Brokers, said: ReplayedState) -> dict[str, tuple[str, int, int]]:
    found = {}
    for name in said.transactions:

        async def ask(name: str = name) -> Any:
            kind, request = CoordinatorType.TRANSACTION, DescribeTransactionsRequest([name])
            (state,) = (await brokers.ask_coordinator(kind, name, ApiKey.DESCRIBE_TRANSACTIONS, request)).transaction_states
            brokers.check_coordinator(kind, name, state.error_code)
            return state

        state = await brokers.insist(ask, _INSIST_S)
        found[name] = state.transaction_state, state.producer_id, state.producer_epoch
    return found
