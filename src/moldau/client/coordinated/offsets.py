"""Where the offsets of a group are: in the coordination tree, in the brokers' group store, or in both."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from moldau.client.coordinated import nodes
from moldau.cluster.znodes import MalformedNodeError
from moldau.model.errors import CoordinationError, MoldauError
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import (
    Coordination,
    Create,
    Data,
    GetData,
    Multi,
    NodeError,
    NodeExistsError,
    NoNodeError,
    Outcome,
    SetData,
)

Offsets = Mapping[TopicPartition, int]
WRITES_AT_A_TIME = 2000
"""In one request: ZooKeeper takes up to a megabyte."""
log = logging.getLogger("moldau.client")


class OffsetStore(Protocol):
    """Reads and commits the offsets of one group. `done` is called once, at once or later, with an error if it failed.

    One commit is made at a time: the next begins when `done` was called.
    """

    def read(self, partitions: Sequence[TopicPartition], done: Callable[[Offsets | MoldauError], object]) -> None:
        """The committed offsets; partitions without one are left out."""

    def commit(self, offsets: Offsets, done: Callable[[MoldauError | None], object]) -> None:
        """Commit these. After a failure some may be committed."""


class TreeOffsets:
    """In the coordination tree.

    Only the owner of a partition commits its offset, in the session that owns it. So a commit that is delayed until that session has
    expired is not carried out, and one of the next owner is not overwritten.
    """

    def __init__(self, tree: Coordination, group: str) -> None:
        self._tree = tree
        self._group = group

    def read(self, partitions: Sequence[TopicPartition], done: Callable[[Offsets | MoldauError], object]) -> None:
        """See the protocol. A node without a number is logged, and counts as none."""
        found: dict[TopicPartition, int] = {}
        errors: list[MoldauError] = []
        left = len(partitions)

        def answered(where: TopicPartition, path: str, outcome: Outcome) -> None:
            nonlocal left
            left -= 1
            if isinstance(outcome, Data):
                try:
                    found[where] = nodes.decode_offset(path, outcome.data)
                except MalformedNodeError as error:
                    log.warning("group %s: %s; partition %s is read as without a committed offset", self._group, error, where)
            elif isinstance(outcome, CoordinationError) and not isinstance(outcome, NoNodeError):
                errors.append(outcome)
            if not left:
                done(errors[0] if errors else found)

        for where in partitions:
            path = nodes.offset(self._group, where)
            self._tree.submit(GetData(path), partial(answered, where, path))
        if not partitions:
            done(found)

    def commit(self, offsets: Offsets, done: Callable[[MoldauError | None], object]) -> None:
        """See the protocol. In one request, unless a node does not exist yet."""
        if not 1 < len(offsets) <= WRITES_AT_A_TIME:
            self._write_each(offsets, done)
            return

        def written(outcome: Outcome) -> None:
            if isinstance(outcome, NodeError):
                self._write_each(offsets, done)
            else:
                done(outcome if isinstance(outcome, CoordinationError) else None)

        writes = (SetData(nodes.offset(self._group, where), nodes.encode_offset(offset)) for where, offset in offsets.items())
        self._tree.submit(Multi(tuple(writes)), written)

    def _write_each(self, offsets: Offsets, done: Callable[[MoldauError | None], object]) -> None:
        errors: list[MoldauError] = []
        left = len(offsets)

        def ended(error: MoldauError | None) -> None:
            nonlocal left
            left -= 1
            if error is not None:
                errors.append(error)
            if not left:
                done(errors[0] if errors else None)

        for where, offset in offsets.items():
            self._write(where, offset, ended)
        if not offsets:
            done(None)

    def _write(self, where: TopicPartition, offset: int, ended: Callable[[MoldauError | None], object]) -> None:
        """Change the node, or create it, with its parents if they were removed."""

        def changed(outcome: Outcome) -> None:
            if isinstance(outcome, NoNodeError):
                self._tree.submit(Create(path, data), created)
            else:
                ended(outcome if isinstance(outcome, CoordinationError) else None)

        def created(outcome: Outcome) -> None:
            if isinstance(outcome, NodeExistsError):
                self._tree.submit(SetData(path, data), changed)
            elif isinstance(outcome, NoNodeError) and not parents_made:
                parents_made.append(True)
                for each in nodes.parents(self._group, [where.topic]):
                    self._tree.submit(Create(each), lambda _: None)
                self._tree.submit(Create(path, data), created)
            else:
                ended(outcome if isinstance(outcome, CoordinationError) else None)

        path, data = nodes.offset(self._group, where), nodes.encode_offset(offset)
        parents_made: list[bool] = []
        self._tree.submit(SetData(path, data), changed)


class DualOffsets:
    """In both, while a group moves from one to the other: committed in both, and the larger offset counts."""

    def __init__(self, first: OffsetStore, second: OffsetStore) -> None:
        self._first = first
        self._second = second

    def read(self, partitions: Sequence[TopicPartition], done: Callable[[Offsets | MoldauError], object]) -> None:
        """See the protocol."""

        def one_read(one: Offsets | MoldauError) -> None:
            if isinstance(one, MoldauError):
                done(one)
            else:
                self._second.read(partitions, partial(both_read, one))

        def both_read(one: Offsets, other: Offsets | MoldauError) -> None:
            if isinstance(other, MoldauError):
                done(other)
            else:
                done({where: max(one.get(where, 0), other.get(where, 0)) for where in partitions if where in one or where in other})

        self._first.read(partitions, one_read)

    def commit(self, offsets: Offsets, done: Callable[[MoldauError | None], object]) -> None:
        """See the protocol. What the first one has not committed, the second one does not."""

        def committed(error: MoldauError | None) -> None:
            if error is None:
                self._second.commit(offsets, done)
            else:
                done(error)

        self._first.commit(offsets, committed)
