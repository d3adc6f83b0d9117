"""WriteTxnMarkers: the coordinator of a transaction, on another broker or in the hands of an operator, has its outcome written here."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from moldau.broker.context import RequestContext
from moldau.broker.dispatch import Reply
from moldau.broker.markers import Marker, MarkerResults, write_markers
from moldau.model.identity import TopicPartition
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
        answers = [_result(marker.producer_id, codes) for marker, codes in zip(markers, results, strict=True)]
        reply(WriteTxnMarkersResponse(markers=answers))

    write_markers(broker, markers, done)


def _result(producer_id: int, codes: MarkerResults) -> WritableTxnMarkerResult:
    topics = [
        WritableTxnMarkerTopicResult(topic, [WritableTxnMarkerPartitionResult(each.partition, codes[each]) for each in group])
        for topic, group in groupby(sorted(codes), key=lambda each: each.topic)
    ]
    return WritableTxnMarkerResult(producer_id, topics)


HANDLERS = {ApiKey.WRITE_TXN_MARKERS: handle}
