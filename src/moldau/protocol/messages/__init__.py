"""The messages of every API, loaded at the first request of it.

Classes are named after the key of the API: the messages of `CREATE_TOPICS` are `CreateTopicsRequest` and `CreateTopicsResponse`. The module
is that of the family, or else it is named after the key too: `find_coordinator`. Classes and fields carry Kafka's names.
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
    ApiKey.LIST_OFFSETS: "offset_lookups",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "offset_lookups",
    ApiKey.LEADER_AND_ISR: "controller",
    ApiKey.STOP_REPLICA: "controller",
    ApiKey.UPDATE_METADATA: "controller",
    ApiKey.CONTROLLED_SHUTDOWN: "controller",
    ApiKey.OFFSET_COMMIT: "offsets",
    ApiKey.OFFSET_FETCH: "offsets",
    ApiKey.JOIN_GROUP: "group_members",
    ApiKey.HEARTBEAT: "group_members",
    ApiKey.LEAVE_GROUP: "group_members",
    ApiKey.SYNC_GROUP: "group_members",
    ApiKey.DESCRIBE_GROUPS: "group_admin",
    ApiKey.LIST_GROUPS: "group_admin",
    ApiKey.DELETE_GROUPS: "group_admin",
    ApiKey.OFFSET_DELETE: "group_admin",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "consumer_groups",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "consumer_groups",
    ApiKey.CREATE_TOPICS: "topics",
    ApiKey.DELETE_TOPICS: "topics",
    ApiKey.DELETE_RECORDS: "topics",
    ApiKey.CREATE_PARTITIONS: "topics",
    ApiKey.DESCRIBE_CONFIGS: "configs",
    ApiKey.ALTER_CONFIGS: "configs",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "configs",
    ApiKey.LIST_CONFIG_RESOURCES: "configs",
    ApiKey.ADD_PARTITIONS_TO_TXN: "transactions",
    ApiKey.ADD_OFFSETS_TO_TXN: "transactions",
    ApiKey.END_TXN: "transactions",
    ApiKey.TXN_OFFSET_COMMIT: "transactions",
    ApiKey.WRITE_TXN_MARKERS: "transaction_admin",
    ApiKey.DESCRIBE_PRODUCERS: "transaction_admin",
    ApiKey.DESCRIBE_TRANSACTIONS: "transaction_admin",
    ApiKey.LIST_TRANSACTIONS: "transaction_admin",
    ApiKey.DESCRIBE_CLUSTER: "cluster",
    ApiKey.DESCRIBE_LOG_DIRS: "cluster",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "cluster",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "cluster",
    ApiKey.ELECT_LEADERS: "partition_reassignments",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "partition_reassignments",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "partition_reassignments",
    ApiKey.DESCRIBE_ACLS: "acls",
    ApiKey.CREATE_ACLS: "acls",
    ApiKey.DELETE_ACLS: "acls",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "client_quotas",
    ApiKey.ALTER_CLIENT_QUOTAS: "client_quotas",
    ApiKey.SASL_HANDSHAKE: "authentication",
    ApiKey.SASL_AUTHENTICATE: "authentication",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "authentication",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "authentication",
}
"""The modules of APIs that share one. Those that a client needs to produce and to fetch have one each."""

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
