"""An operator's decision about partitions that have halted because of what became of their source: continue from where the source is now.

Where a merge continues is written as its position. A copy continues where its log in the target ends, so only a gap can be accepted there.
"""

from typing import NamedTuple

from moldau.client.partition_requests import EARLIEST, LATEST
from moldau.mirror.catalog import Catalog
from moldau.mirror.log_ends import epoch_end
from moldau.mirror.merge.positions import POSITIONS, Key, Stored
from moldau.mirror.merge.stored_positions import read_positions
from moldau.mirror.operator import Operator
from moldau.mirror.partitions import Position
from moldau.mirror.plan.values import Mode
from moldau.mirror.reading import list_offset
from moldau.mirror.state.board import Board
from moldau.mirror.state.orders import Accepted, accepted_record
from moldau.mirror.state.reports import WHOLE_TOPIC, Row, State
from moldau.mirror.state.topic import STATE, KeyValue
from moldau.mirror.state.view import newest_rows
from moldau.model.identity import TopicPartition

ACCEPTABLE = (State.RECREATED, State.DELETED, State.OUT_OF_RETENTION, State.TRUNCATED)
_INSTANCE = "operator"
"""Who has written a position, where that was no process."""


class NotAcceptedError(Exception):
    """There is nothing to accept, or another way has to be taken; the message says which."""


class _Decision(NamedTuple):
    """What is written for one partition, and a line about it."""

    text: str
    accepted: Accepted
    positions: list[KeyValue]


async def accept(operator: Operator, topic: str, partition: int | None) -> list[str]:
    """Have the mirror continue with what has halted of a topic: a line for each partition. NotAcceptedError, PeerError, WorldError."""
    board = await operator.board()
    rows = [seen.row for seen in newest_rows(board, operator.now_ms, board.processes)]
    mine = [row for row in rows if row.topic == topic and row.state.is_halted and partition in (None, row.number)]
    if not mine:
        which = topic if partition is None else f"{topic}-{partition}"
        raise NotAcceptedError(f"nothing of {which} has halted, as far as the processes of mirror {board.mirror} have reported")
    other = next((row for row in mine if row.state not in ACCEPTABLE), None)
    if other is not None:
        what = f"{other.name} of {other.source}: {other.state.value} ({other.reason})"
        raise NotAcceptedError(f"{what}: remove the cause, then moldau mirror resume --topic {topic}")
    catalogs = await operator.source_catalogs()
    for source in {row.source for row in mine}:
        if isinstance(found := catalogs[source], str):
            raise NotAcceptedError(found)
    decider: _Copies | _Merges = _Copies(operator)
    if operator.plan.mode is Mode.MERGE:
        decider = _Merges(operator, board, await operator.of_target(read_positions(operator.target)))
    decisions = [each for row in mine if isinstance(found := catalogs[row.source], Catalog) for each in await decider.decide(row, found)]
    positions = [record for each in decisions for record in each.positions]
    if positions:
        await operator.append(POSITIONS, positions)
    await operator.append(STATE, [accepted_record(board.mirror, each.accepted) for each in decisions])
    return [each.text for each in decisions]


def advice(operator: Operator, row: Row) -> str:
    """What becomes of a partition that has halted when it is resumed, and what an operator has to do."""
    if row.state is State.PROMOTED:
        return "clients write to the copy, and nothing is mirrored into it any more"
    if row.state not in ACCEPTABLE:
        return f"it is tried again, and halts again unless the cause was removed: {row.reason}"
    if operator.plan.mode is Mode.COPY and row.state is not State.OUT_OF_RETENTION:
        return f"it stays halted: {_COPY_ADVICE.format(topic=row.topic)}"
    return f"it stays halted until moldau mirror accept FILE --topic {row.topic}, which continues from where the source is now"


class _Merges:
    """Decisions of a merge."""

    def __init__(self, operator: Operator, board: Board, positions: dict[Key, Stored]) -> None:
        self._operator = operator
        self._mirror = board.mirror
        self._positions = positions

    async def decide(self, row: Row, catalog: Catalog) -> list[_Decision]:
        """What to write for a partition that has halted, or for a topic."""
        mine = {
            key: stored
            for key, stored in self._positions.items()
            if key.mirror == self._mirror
            and key.cluster == catalog.cluster_id
            and stored.topic == row.topic
            and row.number in (WHOLE_TOPIC, key.partition)
        }
        now = catalog.topics.get(row.topic)
        if now is None:
            accepted = self._accepted(row, WHOLE_TOPIC, row.topic_id, -1)
            records: list[KeyValue] = [(key.encode(), None) for key in mine if key.topic_id == row.topic_id]
            return [_Decision(f"{row.name} of {row.source}: deleted in the source, and forgotten", accepted, records)]
        earlier = [key for key in mine if key.topic_id != now.topic_id]
        numbers = range(now.partitions) if row.number == WHOLE_TOPIC else (row.number,)
        if earlier or row.topic_id != now.topic_id:
            return [await self._made_again(row, number, now.topic_id, catalog.cluster_id, mine) for number in numbers]
        return [await self._moved(row, number, catalog.cluster_id, mine) for number in numbers]

    async def _made_again(self, row: Row, number: int, topic_id: bytes, cluster_id: str, mine: dict[Key, Stored]) -> _Decision:
        """The topic is another one: from its beginning."""
        start = await _offset(self._operator, row.source, TopicPartition(row.topic, number), EARLIEST)
        earlier = {key: stored for key, stored in mine.items() if key.topic_id != topic_id and key.partition == number}
        ended = ", ".join(f"offset {stored.position.offset}" for stored in earlier.values())
        after = f"; of the earlier topic everything from {ended} on is skipped" if ended else ""
        key = Key(self._mirror, cluster_id, topic_id, number)
        records: list[KeyValue] = [(key.encode(), None) for key in earlier]
        records.append((key.encode(), Stored(Position(start), row.topic, _INSTANCE).encode()))
        text = f"{row.topic}-{number} of {row.source}: continues at offset {start} of the topic with id {topic_id.hex()}{after}"
        return _Decision(text, self._accepted(row, number, topic_id, start), records)

    async def _moved(self, row: Row, number: int, cluster_id: str, mine: dict[Key, Stored]) -> _Decision:
        """The same topic, and its log begins later or ends earlier than the position."""
        operator, source, partition = self._operator, row.source, TopicPartition(row.topic, number)
        key = Key(self._mirror, cluster_id, row.topic_id, number)
        stored = mine.get(key)
        if stored is None:
            raise NotAcceptedError(f"{partition} of {row.source} has no position in the target: it begins as the file says")
        offset, epoch = stored.position
        start = await _offset(operator, source, partition, EARLIEST)
        if start > offset:
            text = f"continues at offset {start}; offsets {offset} to {start - 1} are skipped"
            to = Position(start)
        else:
            end = await _offset(operator, source, partition, LATEST)
            of_epoch = -1
            if epoch >= 0:
                of_epoch = await operator.of_source(source, epoch_end(operator.sources[source], partition, epoch))
            to = Position(min(offset, end, of_epoch if of_epoch >= 0 else end))
            kept = f"; of offsets {to.offset} to {offset - 1} the target keeps what the source does not have any more"
            text = f"continues at offset {to.offset}{kept if to.offset < offset else ''}"
        records: list[KeyValue] = [(key.encode(), stored._replace(position=to, instance=_INSTANCE, runs_from=-1).encode())]
        return _Decision(f"{partition} of {row.source}: {text}", self._accepted(row, number, row.topic_id, to.offset), records)

    def _accepted(self, row: Row, number: int, topic_id: bytes, offset: int) -> Accepted:
        return Accepted(row.source, row.topic, number, topic_id, offset, self._operator.by, self._operator.now_ms)


class _Copies:
    """Decisions of a copy."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    async def decide(self, row: Row, catalog: Catalog) -> list[_Decision]:
        """What to write for a partition that has halted."""
        if row.state is not State.OUT_OF_RETENTION or row.number == WHOLE_TOPIC:
            raise NotAcceptedError(f"{row.name} of {row.source}: {row.state.value}: {_COPY_ADVICE.format(topic=row.topic)}")
        partition = TopicPartition(row.topic, row.number)
        start = await _offset(self._operator, row.source, partition, EARLIEST)
        end = await self._operator.of_target(list_offset(self._operator.target, partition, LATEST))
        skipped = f"; offsets {end} to {start - 1} are skipped, and missing in the target" if start > end else ""
        text = f"{partition} of {row.source}: continues at offset {max(start, end)}{skipped}"
        accepted = Accepted(row.source, row.topic, row.number, row.topic_id, start, self._operator.by, self._operator.now_ms)
        return [_Decision(text, accepted, [])]


async def _offset(operator: Operator, source: str, partition: TopicPartition, time: int) -> int:
    return await operator.of_source(source, list_offset(operator.sources[source], partition, time))


_COPY_ADVICE = (
    "the topic of the target is a copy of what the source had, and nothing else can follow in it; "
    "delete topic {topic} in the target to have it copied from its beginning, or take it out of the mirror: moldau mirror topics remove"
)
