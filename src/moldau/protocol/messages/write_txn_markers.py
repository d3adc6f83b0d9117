"""WriteTxnMarkers (key 27): the transaction coordinator has leaders write the end of transactions."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, int8, int16, int32, int64, message, string


@message
class WritableTxnMarkerTopic:
    """Partitions of one topic."""

    name: str = string("0+")
    partition_indexes: list[int] = array(int32, "0+")


@message
class WritableTxnMarker:
    """One transaction, how it ended, and where to write that."""

    producer_id: int = int64("0+")
    producer_epoch: int = int16("0+")
    transaction_result: bool = boolean("0+")
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic, "0+")
    coordinator_epoch: int = int32("0+")
    transaction_version: int = int8("2+", ignorable=True)


@message
class WriteTxnMarkersRequest:
    """Markers to write."""

    API: ClassVar = ApiKey.WRITE_TXN_MARKERS

    markers: list[WritableTxnMarker] = array(WritableTxnMarker, "0+")


@message
class WritableTxnMarkerPartitionResult:
    """Whether the marker was written to one partition."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")


@message
class WritableTxnMarkerTopicResult:
    """Answers for partitions of one topic."""

    name: str = string("0+")
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult, "0+")


@message
class WritableTxnMarkerResult:
    """Answers for one transaction."""

    producer_id: int = int64("0+")
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult, "0+")


@message
class WriteTxnMarkersResponse:
    """Answers by producer id."""

    API: ClassVar = ApiKey.WRITE_TXN_MARKERS

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult, "0+")
