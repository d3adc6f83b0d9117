"""Which topics a cluster has, as a mirror sees them."""

from typing import TYPE_CHECKING, NamedTuple

from moldau.model.errors import ErrorCode, known_error
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.messages.metadata import MetadataRequest
from moldau.protocol.versions import VersionRange

if TYPE_CHECKING:
    from moldau.wire.brokers import Brokers

INSIST_S = 60.0
_VERSIONS = VersionRange(10, 13)
"""With topic ids."""


class SeenTopic(NamedTuple):
    """A topic that exists."""

    topic_id: bytes
    partitions: int


class Catalog(NamedTuple):
    """The topics of a cluster at one time."""

    cluster_id: str
    topics: dict[str, SeenTopic]
    denied: tuple[str, ...]
    """Topics that this client may not see whole."""


async def look(brokers: "Brokers", insist_s: float = INSIST_S) -> Catalog:
    """Ask for all topics, again for so long where that may help. PeerError, WorldError."""

    async def ask() -> Catalog:
        response = await brokers.ask(ApiKey.METADATA, MetadataRequest(None, allow_auto_topic_creation=False), version=_VERSIONS)
        brokers.learn_brokers(response)
        topics, denied = {}, []
        for each in response.topics:
            error = known_error(each.error_code)
            if error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                denied.append(each.name)
            elif error is ErrorCode.NONE:
                brokers.learn(each)
                topics[each.name] = SeenTopic(each.topic_id, len(each.partitions))
        return Catalog(response.cluster_id or "", topics, tuple(denied))

    return await brokers.insist(ask, insist_s)
