"""Bugs that are planted to prove that the simulator finds them.

Each replaces one function of the product, in the process that simulates, by one that has the bug. The product itself knows nothing of it.
"""

from collections.abc import Iterator
from typing import Any

from moldau.broker.transactions.transaction import TransactionMetadata
from moldau.log.directory import CLEAN_MARK
from moldau.model.errors import ErrorCode, PeerError
from moldau.testing.simulation.cluster_mutants import CLUSTER_MUTANTS
from moldau.testing.simulation.fleet import clients_of, options_of
from moldau.testing.simulation.mutant import Function, Mutant
from moldau.testing.simulation.trial import run_trial

BLOCKS = 5
SEEDS_MAX = 200
_LATE_MS = 100


def first_of_block(block: int) -> int:
    """The first seed of a block of seeds in which planted bugs are hunted."""
    return 1 + 1000 * block


def seeds_until_found(mutant: Mutant, first: int) -> int | None:
    """How many seeds from `first` on it takes until a run is not clean; None if `SEEDS_MAX` do not find the bug. Of a bug that several
    brokers need, seeds of one are counted, and not run.
    """
    with mutant.planted():
        for count in range(1, SEEDS_MAX + 1):
            options = options_of(first + count - 1)
            if mutant.needs_cluster and options.brokers == 1:
                continue
            if run_trial(options, clients_of(options)).failures:
                return count
    return None


def _answer_before_write(real: Function) -> Function:
    def write_staged(self: Any) -> Any:
        unwritten, self._unwritten = self._unwritten, []
        for pending in unwritten:
            self._settle(pending, {})
        self.complete()
        return real(self)

    return write_staged


def _forget_flush(_real: Function) -> Function:
    def open_offset(self: Any, _level: object) -> int:
        return int(self.log_end_offset)

    return open_offset


class _AnySequence(int):
    """Equal to every number."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


def _skip_duplicate_check(real: Function) -> Function:
    def open_log(self: Any, *positional: Any, **named: Any) -> Any:
        opened = real(self, *positional, **named)
        for entry in self._producers.entries.values():
            entry.next_sequence = _AnySequence(entry.next_sequence)
        return opened

    return open_log


def _lose_snapshot(_real: Function) -> Function:
    def load_newest(self: Any, until: int, now_ms: int, most: int) -> Any:
        return until, {}

    return load_newest


def _show_aborted(real: Function) -> Function:
    def aborted_in(self: Any, *positional: Any) -> Any:
        return real(self, *positional)[:-1]

    return aborted_in


def _forget_tombstones(real: Function) -> Function:
    def init(self: Any, *positional: Any, **named: Any) -> None:
        real(self, *positional, **{**named, "delete_retention_ms": 0})

    return init


def _cut_one_more(real: Function) -> Function:
    def scan(*positional: Any) -> Iterator[Any]:
        held = None
        for each in real(*positional):  # what raises does not yield what is held
            if held is not None:
                yield held
            held = each
        if held is not None:
            yield held

    return scan


def _commit_before_record(real: Function) -> Function:
    def write(self: Any, records: Any, committed: Any, done: Any, producer: Any = None) -> None:
        if self.is_over or committed is None:
            real(self, records, committed, done, producer)
            return
        committed(0)
        done(None)
        real(self, records, None, lambda _error: None, producer)

    return write


def _complete_before_markers(real: Function) -> Function:
    def write(self: Any, subject: Any, transaction: Any, left: Any) -> None:
        parts, coordinator = self._parts, self._coordinator

        def write_markers(markers: Any, done: Function) -> None:
            done([dict.fromkeys(marker.partitions, ErrorCode.NONE) for marker in markers])
            later = coordinator.now_ms() + _LATE_MS
            coordinator.deadline(("markers", subject[0]), later, lambda: parts.write_markers(markers, lambda _results: None))

        self._parts = parts._replace(write_markers=write_markers)
        try:
            real(self, subject, transaction, left)
        finally:
            self._parts = parts

    return write


def _reject_repeated_marker(real: Function) -> Function:
    def check_marker(self: Any, producer_id: int, epoch: int, coordinator_epoch: int, version: int) -> None:
        real(self, producer_id, epoch, coordinator_epoch, version)
        entry = self.entries.get(producer_id)
        if entry is not None and entry.transaction_start < 0:
            raise PeerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "refused until there is another leader")

    return check_marker


def _complete_twice(real: Function) -> Function:
    def store(self: Any, machine: Any, effect: Any) -> None:
        real(self, machine, effect)
        value = getattr(effect, "value", None)
        if isinstance(value, TransactionMetadata) and value.state.is_complete:
            coordinator, records = self._coordinator, self._kind.records(machine, effect)
            later = coordinator.now_ms() + _LATE_MS
            coordinator.deadline(("twice", machine[0]), later, lambda: coordinator.write(records, None, lambda _error: None))

    return store


def _forget_epoch_on_load(real: Function) -> Function:
    def decode_value(value: bytes) -> Any:
        found = real(value)
        return found._replace(epoch=max(found.epoch - 1, 0))

    return decode_value


def _stable_to_high_watermark(_real: Function) -> Function:
    def first_unstable(_self: Any, _high_watermark: int) -> None:
        return None

    return first_unstable


def _trim_uncommitted(real: Function) -> Function:
    def bounds(self: Any) -> Any:
        found = real(self)
        return found._replace(high_watermark=found.end_offset, last_stable_offset=found.end_offset)

    return bounds


def _append_after_failure(_real: Function) -> Function:
    def cut(self: Any) -> None:
        self._uncut = False

    return cut


def _keep_clean_mark(real: Function) -> Function:
    def open_directory(self: Any, *positional: Any, **named: Any) -> None:
        real(self, *positional, **named)
        if self.clean:
            self._files.write_atomically(f"{self.path}/{CLEAN_MARK}", b'{"version":0,"brokerEpoch":-1}')

    return open_directory


def _answer_before_store(real: Function) -> Function:
    def store(self: Any, machine: Any, effect: Any) -> None:
        event = self._kind.stored(machine, effect, None)
        if event is not None:
            self.take(machine, event)
        self._coordinator.write(self._kind.records(machine, effect), None, lambda _error: None)

    return store


def _keep_epoch(real: Function) -> Function:
    def elect(state: Any, *positional: Any, **named: Any) -> Any:
        elected = real(state, *positional, **named)
        return None if elected is None else elected._replace(leader_epoch=state.leader_epoch)

    return elect


MUTANTS = (
    Mutant("answer before write", "moldau.broker.replicas.appends:AppendPipeline.write_staged", _answer_before_write),
    Mutant("forget a flush before an acknowledgement", "moldau.broker.replicas.partition:Partition.open_offset", _forget_flush),
    Mutant("skip a duplicate check after a restart", "moldau.log.opening:Opening.open", _skip_duplicate_check),
    Mutant("lose the producer snapshot", "moldau.log.producer_snapshots:Snapshots.load_newest", _lose_snapshot),
    Mutant("show an aborted record", "moldau.log.transactions:LogTransactions.aborted_in", _show_aborted),
    Mutant("forget a tombstone too early", "moldau.log.cleaning.filtering:BatchFilter.__init__", _forget_tombstones),
    Mutant("cut one batch too many in recovery", "moldau.log.recovery:scan", _cut_one_more),
    Mutant(
        "commit an offset before its record",
        "moldau.broker.coordinators.partition_coordinator:PartitionCoordinator.write",
        _commit_before_record,
    ),
    Mutant(
        "complete a transaction before its markers",
        "moldau.broker.transactions.partition:TransactionRunner._write",
        _complete_before_markers,
    ),
    Mutant("reject a marker that is repeated", "moldau.log.producer_states:ProducerStates.check_marker", _reject_repeated_marker),
    Mutant("write a completion twice", "moldau.broker.coordinators.machine_runner:MachineRunner._store", _complete_twice),
    Mutant("forget the epoch of a producer on load", "moldau.broker.transactions.partition:decode_value", _forget_epoch_on_load),
    Mutant(
        "take the high watermark for the last stable offset",
        "moldau.log.open_transactions:UnsettledTransactions.first_unstable",
        _stable_to_high_watermark,
    ),
    Mutant("remove what is not committed", "moldau.log.trimmer:LogTrimmer._bounds", _trim_uncommitted),
    Mutant("append after what a failed write has left", "moldau.log.segment_appender:SegmentAppender._cut", _append_after_failure),
    Mutant("keep the mark of a clean stop", "moldau.log.directory:LogDirectory.open", _keep_clean_mark),
    Mutant(
        "answer members before their assignment is stored",
        "moldau.broker.coordinators.machine_runner:MachineRunner._store",
        _answer_before_store,
    ),
    Mutant("elect without a new epoch", "moldau.cluster.controller.elections:elect", _keep_epoch),
    *CLUSTER_MUTANTS,
)
