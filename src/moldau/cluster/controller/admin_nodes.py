"""What tools of the time before KRaft write under ``/admin``: elect preferred leaders, move replicas. A node is removed when that is done.

The next controller begins with what it finds: both can be repeated.
"""

import logging
from collections.abc import Callable, Mapping

from moldau.cluster import queries, znodes
from moldau.cluster.changes import DropAdminNode
from moldau.cluster.controller.elections import Elections
from moldau.cluster.controller.events import Outbox
from moldau.cluster.controller.image import ClusterImage
from moldau.cluster.controller.reassignments import Reassignments
from moldau.cluster.controller.requests import AlterReassignments
from moldau.cluster.queries import AdminWork
from moldau.cluster.store import WriteResult
from moldau.cluster.znodes import MalformedNodeError
from moldau.model.errors import CoordinationError, PeerError
from moldau.model.identity import TopicPartition
from moldau.ports.coordination import NoNodeError

_LOG = logging.getLogger(__name__)


class AdminNodes:
    """See the module."""

    def __init__(
        self,
        image: ClusterImage,
        outbox: Outbox,
        elections: Elections,
        reassignments: Callable[[], Reassignments],
        again: Callable[[], object],
    ) -> None:
        """`again` has `read` called after a while."""
        self._image = image
        self._outbox = outbox
        self._elections = elections
        self._reassignments = reassignments
        self._again = again
        self._taken: dict[str, int] = {}
        """`created_id` of the nodes that are being carried out, by path."""
        self._moving: dict[TopicPartition, None] | None = None
        """Partitions of the node of moves that were begun; None without one."""

    def read(self) -> None:
        """Look at both nodes, and watch them."""
        self._outbox.read(queries.admin_work(), self._found)

    def _found(self, found: AdminWork | CoordinationError) -> None:
        if isinstance(found, CoordinationError):
            _LOG.warning("work of tools not read; it is read again: reason=%s", found)
            self._again()
            return
        if (election := found.election) is not None and self._is_new(znodes.PREFERRED_ELECTION, election[1]):
            if isinstance(election[0], MalformedNodeError):
                _LOG.error("work of a tool not carried out; remove the node: reason=%s", election[0])
            else:
                self._elect(election[0])
        if (moves := found.moves) is not None and self._is_new(znodes.REASSIGNMENT, moves[1]):
            if isinstance(moves[0], MalformedNodeError):
                _LOG.error("work of a tool not carried out; remove the node: reason=%s", moves[0])
            else:
                self._move(moves[0])

    def _is_new(self, path: str, created_id: int) -> bool:
        is_new = self._taken.get(path) != created_id
        self._taken[path] = created_id
        return is_new

    def _elect(self, partitions: list[TopicPartition]) -> None:
        self._elections.elect(
            partitions,
            preferred=True,
            unclean=False,
            then=lambda: self._drop(znodes.PREFERRED_ELECTION),
            failed=lambda _error: self._forget(znodes.PREFERRED_ELECTION),
        )

    def _move(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        def begun(outcomes: Mapping[TopicPartition, PeerError | None]) -> None:
            for partition, error in outcomes.items():
                if error is not None:
                    _LOG.error("replicas not moved as a tool wants: partition=%s reason=%s", partition, error.message)
            self._moving = dict.fromkeys(partition for partition, error in outcomes.items() if error is None)
            self.moved()

        self._reassignments().alter(AlterReassignments(targets), begun)

    def moved(self) -> None:
        """Moves were completed, or topics deleted: remove the node when none of its partitions is moving."""
        if self._moving is not None and not any(map(self._is_moving, self._moving)):
            self._moving = None
            self._drop(znodes.REASSIGNMENT)

    def _is_moving(self, partition: TopicPartition) -> bool:
        topic = self._image.topics.get(partition.topic)
        return topic is not None and (partition.partition in topic.adding or partition.partition in topic.removing)

    def _drop(self, path: str) -> None:
        def dropped(outcome: WriteResult | CoordinationError) -> None:
            if isinstance(outcome, CoordinationError) and not isinstance(outcome, NoNodeError):
                _LOG.warning("work of a tool not removed; it is repeated: path=%s reason=%s", path, outcome)
                self._forget(path)

        self._outbox.write([DropAdminNode(path)], dropped)

    def _forget(self, path: str) -> None:
        self._taken.pop(path, None)
        self._again()
