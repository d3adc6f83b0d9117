"""The APIs in service, and the module that serves each.

Nothing else is listed by ApiVersions. A module ends with ``HANDLERS``, from API key to `Handler`; it and the messages of its API are
imported at the first request, so that a start pays for none of them.
"""

from collections.abc import Callable
from importlib import import_module
from inspect import isgeneratorfunction
from typing import Any, Final

from moldau.broker.request import Reply, Request
from moldau.broker.security import Operation
from moldau.model.errors import ErrorCode, ProtocolError
from moldau.model.steps import Steps
from moldau.model.value import Value
from moldau.protocol.api_keys import ApiKey, api_name
from moldau.protocol.messages import load
from moldau.protocol.versions import SERVED, VersionRange

Handler = Callable[[Any, Any, Request, Reply], Steps | None]
"""Called with the services of the broker, the decoded message, the request and what takes the response message. Steps, returned or of a
generator function, are run in turns (`slices`) while the connection is held.
"""

_PACKAGE = "moldau.broker"
OWN_WAY = ""
"""In place of a module: the connection calls the handler."""

MODULES: Final[dict[ApiKey, str]] = {
    ApiKey.PRODUCE: OWN_WAY,
    ApiKey.FETCH: OWN_WAY,
    ApiKey.LIST_OFFSETS: "handlers.offset_lookups",
    ApiKey.METADATA: "handlers.metadata",
    ApiKey.LEADER_AND_ISR: "handlers.controller",
    ApiKey.STOP_REPLICA: "handlers.controller",
    ApiKey.UPDATE_METADATA: "handlers.controller",
    ApiKey.CONTROLLED_SHUTDOWN: "handlers.controller",
    ApiKey.OFFSET_COMMIT: "handlers.offsets",
    ApiKey.OFFSET_FETCH: "handlers.offsets",
    ApiKey.FIND_COORDINATOR: "handlers.coordinators",
    ApiKey.JOIN_GROUP: "handlers.group_members",
    ApiKey.HEARTBEAT: "handlers.group_members",
    ApiKey.LEAVE_GROUP: "handlers.group_members",
    ApiKey.SYNC_GROUP: "handlers.group_members",
    ApiKey.DESCRIBE_GROUPS: "handlers.group_admin",
    ApiKey.LIST_GROUPS: "handlers.group_admin",
    ApiKey.API_VERSIONS: "api.api_versions",
    ApiKey.CREATE_TOPICS: "handlers.topics",
    ApiKey.DELETE_TOPICS: "handlers.topics",
    ApiKey.DELETE_RECORDS: "handlers.delete_records",
    ApiKey.INIT_PRODUCER_ID: "handlers.init_producer_id",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "handlers.offset_lookups",
    ApiKey.ADD_PARTITIONS_TO_TXN: "handlers.transactions",
    ApiKey.ADD_OFFSETS_TO_TXN: "handlers.transactions",
    ApiKey.END_TXN: "handlers.transactions",
    ApiKey.WRITE_TXN_MARKERS: "handlers.transaction_admin",
    ApiKey.TXN_OFFSET_COMMIT: "handlers.transactions",
    ApiKey.DESCRIBE_CONFIGS: "handlers.configs",
    ApiKey.ALTER_CONFIGS: "handlers.configs",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "handlers.cluster",
    ApiKey.DESCRIBE_LOG_DIRS: "handlers.cluster",
    ApiKey.CREATE_PARTITIONS: "handlers.topics",
    ApiKey.DELETE_GROUPS: "handlers.group_admin",
    ApiKey.ELECT_LEADERS: "handlers.leaders",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "handlers.leaders",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "handlers.leaders",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "handlers.configs",
    ApiKey.OFFSET_DELETE: "handlers.group_admin",
    ApiKey.DESCRIBE_CLUSTER: "handlers.cluster",
    ApiKey.DESCRIBE_PRODUCERS: "handlers.transaction_admin",
    ApiKey.DESCRIBE_TRANSACTIONS: "handlers.transaction_admin",
    ApiKey.LIST_TRANSACTIONS: "handlers.transaction_admin",
    ApiKey.LIST_CONFIG_RESOURCES: "handlers.configs",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "handlers.cluster",
    ApiKey.ALTER_MIRROR: "handlers.mirrors",
}
"""The module of each API in service."""

SERVED_KEYS: Final = {int(key): key for key in MODULES}
"""The APIs in service by the number in the header of a request."""

_ON_THE_CLUSTER: Final = {
    ApiKey.LEADER_AND_ISR: Operation.CLUSTER_ACTION,
    ApiKey.STOP_REPLICA: Operation.CLUSTER_ACTION,
    ApiKey.UPDATE_METADATA: Operation.CLUSTER_ACTION,
    ApiKey.CONTROLLED_SHUTDOWN: Operation.CLUSTER_ACTION,
    ApiKey.DESCRIBE_LOG_DIRS: Operation.DESCRIBE,
    ApiKey.ALTER_MIRROR: Operation.ALTER,
    ApiKey.LIST_CONFIG_RESOURCES: Operation.DESCRIBE_CONFIGS,
}
"""What a request needs leave for before anything in it is looked at."""


class UnservedError(ProtocolError):
    """A request of an API or a version that is not in service; there is no answer to it that the client could read."""

    def __init__(self, api_key: int, version: int) -> None:
        served = served_versions().get(api_key)
        which = f"served are versions {served}" if served is not None else "not in service"
        super().__init__(f"{api_name(api_key)} (key {api_key}) version {version}: {which}", ErrorCode.UNSUPPORTED_VERSION)


class ServedApi(Value):
    """How requests of one API are handled."""

    handler: Handler
    in_steps: bool
    """Whether the handler is a generator function."""
    message: type[Any]
    response: type[Any]
    operation: Operation | None
    """What the client has to be allowed to do on the cluster."""


_served: dict[ApiKey, ServedApi] = {}


def served_versions() -> dict[int, VersionRange]:
    """The versions that ApiVersions lists, by API key."""
    return {number: SERVED[key] for number, key in SERVED_KEYS.items()}


def served_api(api_key: ApiKey) -> ServedApi:
    """An API in service that has no way of its own; its module is imported by the first call."""
    served = _served.get(api_key)
    return _load(api_key) if served is None else served


def _load(api_key: ApiKey) -> ServedApi:
    module = import_module(f"{_PACKAGE}.{MODULES[api_key]}")
    for key, handler in module.HANDLERS.items():
        messages = load(key)
        _served[key] = ServedApi(handler, isgeneratorfunction(handler), messages.request, messages.response, _ON_THE_CLUSTER.get(key))
    return _served[api_key]
