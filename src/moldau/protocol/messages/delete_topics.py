"""DeleteTopics (key 20): deletes topics.

Version 6 names them by id as well.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int16, int32, message, string, uuid


@message
class DeleteTopicState:
    """A topic by name or by id."""

    name: str | None = string("6+", nullable="6+")
    topic_id: bytes = uuid("6+")


@message
class DeleteTopicsRequest:
    """Which topics."""

    API: ClassVar = ApiKey.DELETE_TOPICS

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5", ignorable=True)
    timeout_ms: int = int32("0+")


@message
class DeletableTopicResult:
    """What became of one topic."""

    name: str | None = string("0+", nullable="6+")
    topic_id: bytes = uuid("6+", ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("5+", nullable="5+", ignorable=True)


@message
class DeleteTopicsResponse:
    """One answer for each topic."""

    API: ClassVar = ApiKey.DELETE_TOPICS

    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult, "0+")
