"""Ids for idempotent producers, handed out from blocks that the coordination tree gives to brokers.

The first block of a cluster begins at a random multiple of 2^31: a mirror brings batches of producers of another cluster, whose ids must
not be those of producers here. A cluster that has given out ids, in a directory that is adopted too, keeps to those that follow.

The next block is fetched when a tenth of one is left, so that `next` finds an id ready and no request waits for the tree.
"""

import logging
from collections.abc import Callable
from functools import partial

from moldau.cluster import queries, znodes
from moldau.cluster.changes import PutProducerIds
from moldau.cluster.store import MetadataStore, WriteResult
from moldau.cluster.znodes import ProducerIdBlock
from moldau.model.errors import CoordinationError
from moldau.model.identity import ProducerId
from moldau.model.steps import Steps, Suspension
from moldau.ports.coordination import BadVersionError

_LOG = logging.getLogger(__name__)

BLOCK_SIZE = 1000
_FEW = BLOCK_SIZE // 10
_LAST = 2**63 - 1
_FIRST_STEP = 2**31
_FIRST_STEPS = 2**31
"""The first id is below 2^62."""
Done = Callable[[CoordinationError | None], object]


class ProducerIds:
    """Each id is given out once in the life of a cluster; what a broker has not used of its blocks at its end is lost."""

    def __init__(self, store: MetadataStore, broker_id: int, random_bytes: Callable[[int], bytes]) -> None:
        self._store = store
        self._random_bytes = random_bytes
        self._broker_id = broker_id
        self._next = 0
        self._end = -1
        self._spare: ProducerIdBlock | None = None
        """The block after the present one."""
        self._least = 0
        """No lower id is given out."""
        self._waiting: list[Done] = []
        self._is_fetching = False
        self._failure: CoordinationError | None = None

    @property
    def is_ready(self) -> bool:
        """Whether an id is ready."""
        return self._next <= self._end or self._spare is not None

    def ready(self) -> Steps:
        """Wait until an id is ready, or cannot be fetched."""
        if not self.is_ready:
            outcomes: list[object] = []
            resumes: list[Callable[[], object]] = []

            def done(error: CoordinationError | None) -> None:
                outcomes.append(error)
                for resume in resumes:
                    resume()

            self._fetch(done)
            if not outcomes:
                yield Suspension(resumes.append)

    def next(self) -> ProducerId:
        """An id that no producer has had. CoordinationError if none is ready; the next block is being fetched then, unless that failed."""
        if not self.is_ready:
            self._fetch(_ignore)
        if self._next > self._end and self._spare is not None:
            self._next, self._end, self._spare = self._spare.start, self._spare.end, None
        if self._next > self._end:
            raise self._failure or CoordinationError(f"{znodes.PRODUCER_ID_BLOCK}: the next producer ids are not read yet", retriable=True)
        self._next += 1
        if self._end - self._next < _FEW and self._spare is None:
            self._fetch(_ignore)
        return ProducerId(self._next - 1)

    def pass_over(self, used: int, done: Done | None = None) -> None:
        """Give out no id up to `used`: a producer may have it from a Kafka whose directory was adopted.

        `done` when the tree knows it, with an error if it does not. Nothing is written when ids beyond it have been given out already.
        """
        self._least = max(self._least, used + 1)
        self._next = max(self._next, self._least) if self._next <= self._end else self._next
        if self._spare is not None and self._spare.start < self._least:
            self._spare = self._spare._replace(start=self._least) if self._spare.end >= self._least else None

        def read(found: tuple[ProducerIdBlock | None, int] | CoordinationError) -> None:
            if isinstance(found, CoordinationError):
                ended(found)
            elif found[0] is None or found[0].end < used:
                self._fetch(ended)
            else:
                ended(None)

        def ended(error: CoordinationError | None) -> None:
            if error is not None:
                _LOG.error("producer ids not passed over: used=%d reason=%s", used, error)
            if done is not None:
                done(error)

        queries.answer(self._store, queries.producer_id_block(), read)

    def _fetch(self, done: Done) -> None:
        """Fetch a block; `done` when it is here."""
        self._waiting.append(done)
        if not self._is_fetching:
            self._is_fetching = True
            queries.answer(self._store, queries.producer_id_block(), self._read)

    def _read(self, found: tuple[ProducerIdBlock | None, int] | CoordinationError) -> None:
        """The block after the last one given out, or from `_least` on."""
        if isinstance(found, CoordinationError):
            self._end_fetch(found)
            return
        last, version = found
        start = max(self._least, last.end + 1) if last is not None else self._least or self._first_id()
        if start > _LAST - BLOCK_SIZE:
            path = znodes.PRODUCER_ID_BLOCK
            self._end_fetch(CoordinationError(f"{path}: no producer ids are left after {start - 1}", retriable=False))
            return
        block = ProducerIdBlock(self._broker_id, start, start + BLOCK_SIZE - 1)
        self._store.write([PutProducerIds(block, version)], partial(self._written, block))

    def _first_id(self) -> int:
        return int.from_bytes(self._random_bytes(4), "big") % _FIRST_STEPS * _FIRST_STEP

    def _written(self, block: ProducerIdBlock, outcome: WriteResult | CoordinationError) -> None:
        if isinstance(outcome, BadVersionError):  # another broker was faster
            queries.answer(self._store, queries.producer_id_block(), self._read)
        elif isinstance(outcome, CoordinationError):
            self._end_fetch(outcome)
        else:
            if self._next > self._end:
                self._next, self._end = max(block.start, self._least), block.end
            else:
                self._spare = block
            self._end_fetch(None)

    def _end_fetch(self, error: CoordinationError | None) -> None:
        self._is_fetching = False
        self._failure = error
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(error)


def _ignore(_error: CoordinationError | None) -> None:
    """For a fetch that no request waits for."""
