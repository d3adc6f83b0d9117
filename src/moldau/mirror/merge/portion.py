"""What a transaction has of one partition of a source."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from moldau.client.fetched_batches import VisibleBatches
from moldau.client.partition_requests import AbortedRecords
from moldau.mirror.merge.origins import LostOriginError, Origins
from moldau.mirror.merge.outgoing import Outgoing, by_record, passes_whole, whole
from moldau.mirror.partitions import Halt, Position, SourcePartition
from moldau.model.errors import CorruptBatchError, PeerError
from moldau.ports.probe import reached

if TYPE_CHECKING:
    from moldau.mirror.fetched import Fetched
    from moldau.mirror.merge.route import Route


class Portion:
    """See the module."""

    __slots__ = ("batches", "fault", "position", "why")

    def __init__(self, position: Position) -> None:
        self.batches: list[Outgoing] = []
        self.position = position
        """After them."""
        self.why = Halt.POISONED
        self.fault = ""
        """Why what comes next cannot be mirrored."""

    @property
    def origins(self) -> set[str]:
        """The clusters that its records were in before the source."""
        return {cluster for each in self.batches for cluster in each.origins}


def portion_of(
    partition: SourcePartition,
    target_id: str,
    taken: "Iterable[tuple[Position, Fetched]]",
    origins: Origins,
    route: "Route",
    written: Position,
) -> Portion:
    """What the target gets: what readers of committed records see and has not been there before, up to the first batch that cannot be read.

    `taken`: what was fetched, and the position before it. `written`: after the last transaction.
    """
    target, found = route.whole(partition), Portion(written)
    for position, fetched in taken:
        visible = VisibleBatches(AbortedRecords(each.producer_id, each.first_offset) for each in fetched.aborted)
        for batch in fetched.batches:
            header = batch[0]
            try:
                chain = origins.chain(partition.topic_partition, header) if visible.shows(*batch) else None
                if chain is None:
                    reached("mirror: a batch is not for readers of committed records")
                elif target_id in chain:
                    pass  # it was there before
                elif target is not None and passes_whole(header, position.offset):
                    found.batches.append(whole(batch, target, chain))
                else:
                    reached("mirror: a batch was taken record by record")
                    found.batches += by_record(batch, position.offset, lambda record: target or route.of(partition, record), chain)
            except (CorruptBatchError, PeerError) as error:
                found.fault = f"the batch at offset {header.base_offset} cannot be read: {error}"
                return found
            except LostOriginError as error:
                found.why, found.fault = Halt.ORIGIN_LOST, str(error)
                return found
            found.position = Position(header.last_offset + 1, header.partition_leader_epoch)
    return found
