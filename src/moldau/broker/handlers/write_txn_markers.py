"""WriteTxnMarkers: the coordinator of a transaction, on another broker or in the hands of an operator, has its outcome written here."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.broker.context import RequestContext
from moldau.broker.dispatch import Reply
from moldau.broker.markers import Marker, MarkerResults, write_markers
from moldau.model.identity import TopicPartition
from moldau.model.steps import Steps, unless_few
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from moldau.broker.broker import Broker

_LOG = logging.getLogger(__name__)


def handle(broker: "Broker", request: WriteTxnMarkersRequest, context: RequestContext, reply: Reply) -> None:
    """A code for each partition of each marker: see :func:`moldau.broker.markers.write_markers`."""
    markers = [
        Marker(
            each.producer_id,
            each.producer_epoch,
            each.transaction_result,
            each.coordinator_epoch,
            each.transaction_version,
            [TopicPartition(topic.name, index) for topic in each.topics for index in topic.partition_indexes],
        )
        for each in request.markers
    ]

    def done(results: Sequence[MarkerResults]) -> None:
        steps = _answer(markers, results, reply)
        left = unless_few(steps, sum(map(len, results)))
        if left is not None:
            broker.slices.run(left, _report)

    write_markers(broker, markers, done)


def _answer(markers: Sequence[Marker], results: Sequence[MarkerResults], reply: Reply) -> Steps:
    answers = []
    for marker, codes in zip(markers, results, strict=True):
        topics: dict[str, WritableTxnMarkerTopicResult] = {}
        for (topic, partition), code in codes.items():
            told = topics.setdefault(topic, WritableTxnMarkerTopicResult(topic, []))
            told.partitions.append(WritableTxnMarkerPartitionResult(partition, code))
            yield None
        answers.append(WritableTxnMarkerResult(marker.producer_id, list(topics.values())))
    reply(WriteTxnMarkersResponse(markers=answers))


def _report(error: Exception | None) -> None:
    if error is not None:
        _LOG.error("markers not answered because of a bug", exc_info=error)


HANDLERS = {ApiKey.WRITE_TXN_MARKERS: handle}
