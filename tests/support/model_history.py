"""A history as an honest log makes it, from a seed: a list per partition, clients at random, and every oddity that is legal.

Unknown outcomes that took effect, at once or later, and that did not; aborted transactions between committed ones; markers that use up
offsets; producers that doubled and reordered what they sent, without idempotence; readers moved by seek and by rebalances; both isolations;
offsets committed, reset and committed in transactions; producers fenced by their successors; outages. With `losses` also power cuts that
take the end of a partition, or offsets of a group, from what was acknowledged.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from moldau.testing.history.history import NONE, History, Outcome

MARKER = -1


@dataclass(slots=True)
class Log:
    """A partition: a value or MARKER per offset, and per offset whether readers of committed data may be given it."""

    entries: list[int] = field(default_factory=list)
    shown: list[bool] = field(default_factory=list)
    open: dict[int, list[int]] = field(default_factory=dict)
    """Per transaction that is open: the offsets of its values."""
    ended: dict[int, list[int]] = field(default_factory=dict)
    """Per transaction that ended here: the offsets of its values, and of its marker."""
    epochs: list[int] = field(default_factory=list)
    """Per offset: the leader epoch in which it was written."""
    epoch: int = 0

    def append(self, value: int, transaction: int) -> int:
        """The offset."""
        self.entries.append(value)
        self.epochs.append(self.epoch)
        self.shown.append(transaction == NONE)
        if transaction != NONE:
            self.open.setdefault(transaction, []).append(len(self.entries) - 1)
        return len(self.entries) - 1

    def end(self, transaction: int, *, committed: bool) -> None:
        """Write the marker, if the transaction wrote here."""
        offsets = self.open.pop(transaction, [])
        for offset in offsets:
            self.shown[offset] = committed
        if offsets:
            self.ended[transaction] = [*offsets, self.append(MARKER, NONE)]

    def cut(self, end: int) -> list[int]:
        """Lose everything from an offset on; the transactions that are open again, since only their markers went."""
        del self.entries[end:], self.shown[end:], self.epochs[end:]
        self.epoch += 1
        reopened = [number for number, offsets in self.ended.items() if offsets[0] < end <= offsets[-1]]
        for number in reopened:
            self.open[number] = self.ended[number]
        self.ended = {number: offsets for number, offsets in self.ended.items() if offsets[-1] < end}
        for offsets in self.open.values():
            offsets[:] = [offset for offset in offsets if offset < end]
        self.open = {number: offsets for number, offsets in self.open.items() if offsets}
        return reopened

    def stable(self) -> int:
        """The last stable offset."""
        return min((offsets[0] for offsets in self.open.values()), default=len(self.entries))


@dataclass(slots=True)
class Writer:
    """A transactional producer with what it has open."""

    number: int
    transactional_id: str
    transaction: int = NONE
    offsets: dict[int, int] = field(default_factory=dict)


class Model:
    """Steps at random; `history` is what its clients record."""

    def __init__(self, seed: int, partitions: int = 3) -> None:
        self.random = random.Random(seed)
        self.seconds = 0.0
        self.history = History(clock=self._tick)
        self.history.now()
        self.logs = [Log() for _ in range(partitions)]
        for number in range(partitions):
            self.history.add_partition(f"m-{number}")
        self.group_offset = [NONE] * partitions
        self.plain = self.history.add_producer("plain")
        self.careless = self.history.add_producer("careless", idempotent=False)
        self.writers = [self._writer(f"id-{number}") for number in range(2)]
        self.late: list[Writer] = []
        """Transactions that were asked to commit, of which their producers heard no more; they will end one way or another."""
        self.committed: list[list[int]] = [[NONE] for _ in range(partitions)]
        """Per partition: the group's offsets so far."""
        self.positions: dict[int, list[int]] = {}
        self.fetched: dict[int, list[tuple[int, int, int, int]]] = {}
        """Per reader: records that it has and was not asked for yet."""
        for name, committed, group in (("one", True, ""), ("everything", False, ""), ("member", True, "g")):
            self.positions[self.history.add_reader(name, committed=committed, group=group)] = [0] * partitions

    def _tick(self) -> float:
        self.seconds += 0.001
        return self.seconds

    def _writer(self, transactional_id: str) -> Writer:
        number = self.history.add_producer(f"of {transactional_id}", transactional_id=transactional_id)
        self.history.producer_ready(number)
        return Writer(number, transactional_id)

    def run(self, steps: int, *, losses: bool = False) -> History:
        """Some steps, then the drain: everything ends and is read."""
        chances: dict[Callable[[], None], float] = {
            self.send: 8,
            self.send_carelessly: 2,
            self.send_in_transaction: 8,
            self.end_transaction: 2,
            self.end_late_transaction: 1,
            self.take_over: 0.2,
            self.poll: 8,
            self.move: 0.3,
            self.commit_offset: 1,
            self.look_at_offset: 1,
            self.look_at_end: 1,
            self.break_and_heal: 0.1,
            self.cut_power: 0.3 * losses,
            self.lose_offsets: 0.3 * losses,
        }
        for step in self.random.choices(list(chances), list(chances.values()), k=steps):
            step()
        for writer in list(self.writers):
            self.end_transaction(writer)
        while self.late:
            self.end_late_transaction()
        drain = self.history.add_reader("drain")
        self.positions[drain] = [0] * len(self.logs)
        for _ in self.logs:
            self.poll(drain, sum(len(log.entries) for log in self.logs))
        return self.history

    # Producers

    def _partition(self) -> int:
        return self.random.randrange(len(self.logs))

    def send(self) -> None:
        """By the idempotent producer: mostly acknowledged; else unknown and stored or not, or failed and not stored."""
        partition = self._partition()
        value = self.history.send(self.plain, partition)
        match self.random.choices(("ok", "unknown, stored", "unknown, not stored", "failed"), (90, 4, 3, 3))[0]:
            case "ok":
                self.history.send_ended(value, Outcome.OK, self.logs[partition].append(value, NONE))
            case "unknown, stored":
                self.logs[partition].append(value, NONE)
                self.history.send_ended(value, Outcome.UNKNOWN)
            case "unknown, not stored":
                self.history.send_ended(value, Outcome.UNKNOWN)
            case _:
                self.history.send_ended(value, Outcome.FAILED)

    def send_carelessly(self) -> None:
        """Two values whose retries come out of order, one of them twice."""
        partition = self._partition()
        values = [self.history.send(self.careless, partition) for _ in range(2)]
        offsets = [self.logs[partition].append(value, NONE) for value in (values[1], values[0], values[1])]
        self.history.send_ended(values[0], Outcome.OK, offsets[1])
        self.history.send_ended(values[1], Outcome.OK, offsets[2])

    def send_in_transaction(self) -> None:
        """One value, or the group's offset."""
        writer = self.random.choice(self.writers)
        if writer.transaction == NONE:
            writer.transaction = self.history.begin(writer.number)
        partition = self._partition()
        if self.random.random() < 0.1 and not self._offset_is_pending(partition):
            offset = self.random.randrange(len(self.logs[partition].entries) + 1)
            writer.offsets[partition] = offset
            self.history.commit_offset("g", partition, offset, transaction=writer.transaction)
            return
        value = self.history.send(writer.number, partition, transaction=writer.transaction)
        offset = self.logs[partition].append(value, writer.transaction)
        if self.random.random() < 0.9:
            self.history.send_ended(value, Outcome.OK, offset)

    def _offset_is_pending(self, partition: int) -> bool:
        return any(partition in writer.offsets for writer in [*self.writers, *self.late])

    def end_transaction(self, writer: Writer | None = None) -> None:
        """Committed, aborted, or asked to commit and never answered."""
        writer = writer or self.random.choice(self.writers)
        if writer.transaction == NONE:
            return
        match self.random.choices(("commit", "abort", "lost"), (70, 20, 10))[0]:
            case "commit":
                self.history.ask_commit(writer.transaction)
                self._end(writer, committed=True)
                self.history.transaction_ended(writer.transaction, Outcome.OK)
            case "abort":
                self._end(writer, committed=False)
                self.history.transaction_ended(writer.transaction, Outcome.FAILED)
            case _:
                self.history.ask_commit(writer.transaction)
                self._leave(writer)
                return
        writer.transaction, writer.offsets = NONE, {}

    def _end(self, writer: Writer, *, committed: bool) -> None:
        for log in self.logs:
            log.end(writer.transaction, committed=committed)
        if committed:
            for partition, offset in writer.offsets.items():
                self._set_offset(partition, offset)

    def _leave(self, writer: Writer) -> None:
        """Its producer gives up: what it had open ends later, and a new producer takes the transactional id then."""
        self.history.producer_gone(writer.number)
        self.writers.remove(writer)
        self.late.append(writer)
        if not self.writers:
            self.end_late_transaction()

    def end_late_transaction(self) -> None:
        """One that was left, one way or another; its successor is ready afterwards."""
        if self.late:
            writer = self.late.pop(self.random.randrange(len(self.late)))
            self._end(
                writer, committed=self.random.random() < 0.5 and self.history.transactions[writer.transaction].commit_asked < self.seconds
            )
            self.writers.append(self._writer(writer.transactional_id))

    def take_over(self) -> None:
        """A producer with the same transactional id: what the older had open is aborted, and what it goes on to send is refused."""
        older = self.random.choice(self.writers)
        self._end(Writer(older.number, older.transactional_id, older.transaction), committed=False)
        self.writers[self.writers.index(older)] = self._writer(older.transactional_id)
        if older.transaction != NONE:
            value = self.history.send(older.number, 0, transaction=older.transaction)
            self.history.send_ended(value, Outcome.FAILED)
            self.history.ask_commit(older.transaction)
            self.history.transaction_ended(older.transaction, Outcome.FAILED)

    # Consumers

    def poll(self, reader: int | None = None, count: int = 8) -> None:
        """Some records of one partition after another, up to `count`; or those that were fetched before."""
        if reader is None:
            reader = self.random.choice(list(self.positions))
        begun = self.history.now()
        records = self.fetched.pop(reader, None) or self._fetch(reader, count)
        if count == 8 and self.random.random() < 0.1:
            self.fetched[reader] = records
        else:
            self.history.polled(reader, begun, records)

    def _fetch(self, reader: int, count: int) -> list[tuple[int, int, int, int]]:
        records: list[tuple[int, int, int, int]] = []
        for partition in self.random.sample(range(len(self.logs)), len(self.logs)):
            log, position = self.logs[partition], self.positions[reader][partition]
            committed = self.history.readers[reader].committed
            end = log.stable() if committed else len(log.entries)
            if position > len(log.entries):
                self._reset(reader, partition)
                continue
            while position < end and len(records) < count:
                if log.entries[position] != MARKER and (log.shown[position] or not committed):
                    records.append((partition, position, log.entries[position], log.epochs[position]))
                position += 1
            self.positions[reader][partition] = max(position, self.positions[reader][partition])
        return records

    def _reset(self, reader: int, partition: int) -> None:
        """A position that a power cut left out of range."""
        self.history.told_out_of_range(reader, partition, self.positions[reader][partition])
        self.positions[reader][partition] = 0
        self.history.position(reader, partition, 0)

    def move(self) -> None:
        """A seek or a rebalance: the reader goes on somewhere else, or at the group's offset."""
        reader, partition = self.random.choice(list(self.positions)), self._partition()
        offset = self.random.randrange(len(self.logs[partition].entries) + 1)
        if self.history.readers[reader].group:
            offset = max(self.group_offset[partition], 0)
        if rows := [row for row in self.fetched.pop(reader, []) if row[0] != partition]:
            self.fetched[reader] = rows
        self.positions[reader][partition] = offset
        self.history.position(reader, partition, offset)

    # Offsets

    def _set_offset(self, partition: int, offset: int) -> None:
        self.group_offset[partition] = offset
        self.committed[partition].append(offset)

    def commit_offset(self) -> None:
        """Forward or, by a reset, backward; sometimes without an answer."""
        partition = self._partition()
        if self._offset_is_pending(partition):
            return
        offset = self.random.randrange(len(self.logs[partition].entries) + 1)
        number = self.history.commit_offset("g", partition, offset)
        outcome = self.random.choices((Outcome.OK, Outcome.UNKNOWN, Outcome.FAILED), (80, 10, 10))[0]
        if outcome == Outcome.OK or (outcome == Outcome.UNKNOWN and self.random.random() < 0.5):
            self._set_offset(partition, offset)
        self.history.offset_commit_ended(number, outcome)

    def look_at_offset(self) -> None:
        """With require-stable: not while one is pending."""
        partition = self._partition()
        if not self._offset_is_pending(partition):
            self.history.saw_offset("g", partition, self.group_offset[partition], self.history.now())

    def look_at_end(self) -> None:
        """Of everything or of what is committed."""
        partition, committed = self._partition(), self.random.random() < 0.5
        log = self.logs[partition]
        self.history.saw_end(partition, log.stable() if committed else len(log.entries), self.history.now(), committed=committed)

    def break_and_heal(self) -> None:
        """Nothing happens for a minute."""
        outage = self.history.outage("down")
        self.seconds += 60
        self.history.healed(outage)

    # Losses

    def cut_power(self) -> None:
        """A partition loses its end, with requests on their way: their answers come late, or they are sent again, or both."""
        partition = self._partition()
        log = self.logs[partition]
        looked = self.history.now()
        values = [self.history.send(self.plain, partition) for _ in range(self.random.randrange(3))]
        offsets = [log.append(value, NONE) for value in values]
        end, old_end = self.random.randrange(max(0, len(log.entries) - 20), len(log.entries) + 1), len(log.entries)
        if end == old_end:
            for value, offset in zip(values, offsets, strict=True):
                self.history.send_ended(value, Outcome.OK, offset)
            return
        epoch = log.epoch
        reopened = log.cut(end)
        self.history.lost(partition, end, self.history.now(), epoch)
        for transaction in reopened:
            asked = self.history.transactions[transaction].commit_asked < self.seconds
            log.end(transaction, committed=asked and self.random.random() < 0.5)
        for value, offset in zip(values, offsets, strict=True):
            if self.random.random() < 0.5:
                self.history.send_ended(value, Outcome.OK, offset)
            elif offset >= end:
                self.history.send_ended(value, Outcome.OK, log.append(value, NONE))
        self.history.saw_end(partition, self.random.choice((end, old_end)), looked, committed=False)

    def lose_offsets(self) -> None:
        """The group is where it was some commits ago."""
        partition = self._partition()
        if not self._offset_is_pending(partition):
            self.history.lost_group("g", self.history.now())
            self.group_offset[partition] = self.random.choice(self.committed[partition])
