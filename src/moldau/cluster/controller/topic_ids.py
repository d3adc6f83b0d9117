"""Ids of topics that were created by a version of Apache Kafka that had none."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from moldau.cluster.changes import PutTopic
from moldau.cluster.controller.broadcast import PARTITIONS_PER_STEP
from moldau.cluster.store import WriteResult
from moldau.model.errors import CoordinationError

if TYPE_CHECKING:
    from moldau.cluster.controller.events import Outbox
    from moldau.cluster.controller.image import ClusterImage


def write_ids(
    image: "ClusterImage",
    outbox: "Outbox",
    changes: Sequence[PutTopic],
    then: Callable[[], object],
    failed: Callable[[CoordinationError], object],
) -> None:
    """Write the topics with their ids, some at a time; `then` when all are written."""
    if not changes:
        then()
        return
    some = changes[:PARTITIONS_PER_STEP]

    def written(outcome: WriteResult | CoordinationError) -> None:
        if isinstance(outcome, CoordinationError):
            failed(outcome)
            return
        for change in some:
            image.topics[change.name].version += 1
        write_ids(image, outbox, changes[PARTITIONS_PER_STEP:], then, failed)

    outbox.write(some, written)
