"""ResponseQueue that were made counting on a write that is still to come; put right where the write fails.

A batch may have been written all the same: one that needed a new segment had those before it written to the old one. Its answer stands.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from moldau.broker.handlers.produce import ACKS_NONE, ProduceOutcome
from moldau.broker.network.responses import PendingResponse, ResponseQueue
from moldau.broker.replicas.hosted import HostedPartition
from moldau.model.errors import ErrorCode, StorageError

if TYPE_CHECKING:
    from moldau.broker.broker import Broker
    from moldau.broker.pending_produce import PendingProduce
    from moldau.broker.request import FastPath
    from moldau.ports.transport import Part

NO_PLACE = -1


class UnwrittenAnswers:
    """What the requests of one read have staged, and where their answers stand."""

    __slots__ = ("decoded", "entries", "pending")

    def __init__(self) -> None:
        self.entries: list[tuple[int | PendingResponse, int, FastPath | ProduceOutcome]] = []
        """Place in `ResponseQueue.ready`, or slot, or `NO_PLACE` with acks 0; correlation id; what made the answer."""
        self.decoded = 0
        """Entries of requests that went the general way, which are counted elsewhere."""
        self.pending: list[PendingProduce] = []
        """Those that will wait for a sync after the write."""

    def add(self, place: int | PendingResponse, outcome: ProduceOutcome) -> None:
        """Take in a request that went the general way."""
        self.entries.append((place, outcome.correlation_id, outcome))
        self.decoded += 1

    def write(self, broker: "Broker", answers: ResponseQueue, received_s: float, started_s: float) -> str | None:
        """Write what is staged, correct the answers that counted on a write that failed, complete what waited for the rest.

        Why the connection has to be closed, if it has. The times are those of the requests that went the shortest way, see `Counters`.
        """
        failures = broker.replicas.write_staged()
        repeated = len(self.entries) - self.decoded
        if repeated:
            broker.counters.produced(repeated, received_s, started_s)
        self.decoded = 0
        reason = self._correct(broker, failures, answers) if failures else None
        self.entries.clear()
        if self.pending:
            pending, self.pending = self.pending, []
            for produce in pending:
                produce.start()
        return reason

    def _correct(self, broker: "Broker", failures: Mapping[HostedPartition, StorageError], answers: ResponseQueue) -> str | None:
        reason = None
        for place, correlation_id, source in self.entries:
            answer = source.refuse(correlation_id, failures, _said(place, answers))
            if answer is None:
                continue
            broker.counters.produce.failed((ErrorCode.KAFKA_STORAGE_ERROR,))
            if source.acks == ACKS_NONE:
                reason = "produce with acks 0 could not be written"
            elif isinstance(place, int):
                answers.ready[place] = answer
            elif place.parts is not None:
                place.parts = (answer,)
        return reason


def _said(place: int | PendingResponse, answers: ResponseQueue) -> "Part":
    """The answer that was made, empty if there is none."""
    if isinstance(place, PendingResponse):
        return place.parts[0] if place.parts else b""
    return b"" if place == NO_PLACE else answers.ready[place]
