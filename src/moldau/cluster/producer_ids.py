"""Ids for idempotent producers, handed out from blocks that the coordination tree gives to brokers."""

from moldau.cluster import paths
from moldau.cluster.znodes import ProducerIdBlock, decode_block, encode_block
from moldau.model.errors import CoordinationError
from moldau.model.identity import ProducerId
from moldau.model.steps import Elsewhere, Steps
from moldau.ports.coordination import BadVersionError, EmbeddedCoordination, GetData, SetData, answered

BLOCK_SIZE = 1000
_LAST = 2**63 - 1


class ProducerIds:
    """Each id is given out once in the life of a cluster; what a broker has not used of its block at its end is lost."""

    def __init__(self, coordination: EmbeddedCoordination, broker_id: int) -> None:
        self._coordination = coordination
        self._broker_id = broker_id
        self._next = 0
        self._end = -1

    @property
    def is_ready(self) -> bool:
        """Whether `next` does not wait for other work of the tree."""
        return self._next <= self._end or self._coordination.is_writable

    def ready(self) -> Steps:
        """Wait until `is_ready`."""
        while not self.is_ready:
            yield Elsewhere(self._coordination.when_writable)

    def next(self) -> ProducerId:
        """An id that nobody has had. CoordinationError when a new block is needed and cannot be had."""
        if self._next > self._end:
            block = self._take_block()
            self._next, self._end = block.start, block.end
        self._next += 1
        return ProducerId(self._next - 1)

    def pass_over(self, used: int) -> None:
        """Give out no id up to `used`: somebody has it who did not get it here, but from a Kafka whose directory was adopted.

        CoordinationError. Nothing is written when ids beyond it have been given out already.
        """
        last = decode_block(paths.PRODUCER_ID_BLOCK, answered(self._coordination, GetData(paths.PRODUCER_ID_BLOCK)).data)
        if self._next <= used <= self._end:
            self._next = used + 1
        elif last is None or last.end < used:
            block = self._take_block(used + 1)
            self._next, self._end = block.start, block.end

    def _take_block(self, least: int = 0) -> ProducerIdBlock:
        """The block after the last one given out, or from `least` on; again from the start when another broker was faster."""
        path = paths.PRODUCER_ID_BLOCK
        while True:
            data, stat = answered(self._coordination, GetData(path))
            last = decode_block(path, data)
            start = max(least, 0 if last is None else last.end + 1)
            if start > _LAST - BLOCK_SIZE:
                raise CoordinationError(f"{path}: no producer ids are left after {start - 1}", retriable=False)
            block = ProducerIdBlock(self._broker_id, start, start + BLOCK_SIZE - 1)
            try:
                answered(self._coordination, SetData(path, encode_block(block), stat.version))
            except BadVersionError:
                continue
            return block
