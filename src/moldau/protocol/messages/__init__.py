"""The messages of every API, loaded at the first request of it.

Classes are named after the key of the API: the messages of `CREATE_TOPICS` are `CreateTopicsRequest` and `CreateTopicsResponse`. The module
is that of the family, or else it is named after the key too: `create_topics`. Classes and fields carry Kafka's names.
"""

from importlib import import_module
from typing import Any, Final

from moldau.model.value import Value
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.versions import CODEC, FLEXIBLE_FROM, VersionRange


class MessagePair(Value):
    """The two messages of an API."""

    request: type[Any]
    response: type[Any]
    versions: VersionRange
    flexible_from: int | None


_FAMILIES: Final[dict[ApiKey, str]] = {
    ApiKey.DESCRIBE_ACLS: "acls",
    ApiKey.CREATE_ACLS: "acls",
    ApiKey.DELETE_ACLS: "acls",
    ApiKey.JOIN_GROUP: "group_members",
    ApiKey.HEARTBEAT: "group_members",
    ApiKey.LEAVE_GROUP: "group_members",
    ApiKey.SYNC_GROUP: "group_members",
    ApiKey.ADD_PARTITIONS_TO_TXN: "transactions",
    ApiKey.ADD_OFFSETS_TO_TXN: "transactions",
    ApiKey.END_TXN: "transactions",
    ApiKey.TXN_OFFSET_COMMIT: "transactions",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "scram_credentials",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "scram_credentials",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "partition_reassignments",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "partition_reassignments",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "log_dirs",
    ApiKey.DESCRIBE_LOG_DIRS: "log_dirs",
    ApiKey.SASL_HANDSHAKE: "sasl",
    ApiKey.SASL_AUTHENTICATE: "sasl",
}
"""The modules of APIs that share one: those that are always used together, or not served here."""

_loaded: dict[ApiKey, MessagePair] = {}


def load(api_key: ApiKey) -> MessagePair:
    """The messages of an API; its module is imported by the first call."""
    pair = _loaded.get(api_key)
    if pair is None:
        module = import_module(f"{__name__}.{_FAMILIES.get(api_key) or api_key.name.lower()}")
        stem = api_key.name.title().replace("_", "")
        request, response = getattr(module, f"{stem}Request"), getattr(module, f"{stem}Response")
        pair = _loaded[api_key] = MessagePair(request, response, CODEC[api_key], FLEXIBLE_FROM[api_key])
    return pair
