"""Which versions of each API exist here: plain data, usable without loading a single message.

The minimum and the maximum of an API are Kafka 4.3's, the maximum being the last stable one; the broker-to-broker keys 4 to 7, gone from
Kafka 4.0, keep Kafka 3.9's.
"""

from typing import Final, NamedTuple

from moldau.model.value import Value
from moldau.protocol.api_keys import ApiKey


class VersionRange(NamedTuple):
    """Versions from `min` to `max`, both included; empty when `max` is below `min`."""

    min: int
    max: int

    def includes(self, version: int) -> bool:
        """Whether `version` lies in the range."""
        return self.min <= version <= self.max

    def __str__(self) -> str:
        return f"{self.min}-{self.max}"


class Exemption(Value):
    """Versions that are advertised although the codec knows others."""

    advertised: VersionRange
    reason: str


# key: (first version, last version, first flexible version)
_TABLE: Final[dict[ApiKey, tuple[int, int, int | None]]] = {
    ApiKey.PRODUCE: (3, 13, 9),
    ApiKey.FETCH: (4, 18, 12),
    ApiKey.LIST_OFFSETS: (1, 11, 6),
    ApiKey.METADATA: (0, 13, 9),
    ApiKey.LEADER_AND_ISR: (0, 7, 4),
    ApiKey.STOP_REPLICA: (0, 4, 2),
    ApiKey.UPDATE_METADATA: (0, 8, 6),
    ApiKey.CONTROLLED_SHUTDOWN: (0, 3, 3),
    ApiKey.OFFSET_COMMIT: (2, 10, 8),
    ApiKey.OFFSET_FETCH: (1, 10, 6),
    ApiKey.FIND_COORDINATOR: (0, 6, 3),
    ApiKey.JOIN_GROUP: (0, 9, 6),
    ApiKey.HEARTBEAT: (0, 4, 4),
    ApiKey.LEAVE_GROUP: (0, 5, 4),
    ApiKey.SYNC_GROUP: (0, 5, 4),
    ApiKey.DESCRIBE_GROUPS: (0, 6, 5),
    ApiKey.LIST_GROUPS: (0, 5, 3),
    ApiKey.SASL_HANDSHAKE: (0, 1, None),
    ApiKey.API_VERSIONS: (0, 4, 3),
    ApiKey.CREATE_TOPICS: (2, 7, 5),
    ApiKey.DELETE_TOPICS: (1, 6, 4),
    ApiKey.DELETE_RECORDS: (0, 2, 2),
    ApiKey.INIT_PRODUCER_ID: (0, 5, 2),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4, 3),
    ApiKey.END_TXN: (0, 5, 3),
    ApiKey.WRITE_TXN_MARKERS: (1, 2, 1),
    ApiKey.TXN_OFFSET_COMMIT: (0, 5, 3),
    ApiKey.DESCRIBE_ACLS: (1, 3, 2),
    ApiKey.CREATE_ACLS: (1, 3, 2),
    ApiKey.DELETE_ACLS: (1, 3, 2),
    ApiKey.DESCRIBE_CONFIGS: (1, 4, 4),
    ApiKey.ALTER_CONFIGS: (0, 2, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (1, 2, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 5, 2),
    ApiKey.SASL_AUTHENTICATE: (0, 2, 2),
    ApiKey.CREATE_PARTITIONS: (0, 3, 2),
    ApiKey.DELETE_GROUPS: (0, 2, 2),
    ApiKey.ELECT_LEADERS: (0, 2, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1, 0),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0, 0),
    ApiKey.OFFSET_DELETE: (0, 0, None),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0, 0),
    ApiKey.DESCRIBE_CLUSTER: (0, 2, 0),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 2, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1, 0),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1, 0),
    ApiKey.LIST_CONFIG_RESOURCES: (0, 1, 0),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0, 0),
    ApiKey.ALTER_MIRROR: (0, 0, 0),
}

CODEC: Final[dict[ApiKey, VersionRange]] = {key: VersionRange(first, last) for key, (first, last, _) in _TABLE.items()}
"""What `moldau.protocol.codec` encodes and decodes."""

FLEXIBLE_FROM: Final[dict[ApiKey, int | None]] = {key: flexible for key, (_, _, flexible) in _TABLE.items()}
"""First flexible version (KIP-482): compact lengths, tagged fields, the newer headers. None where no version is flexible."""

EXEMPTIONS: Final[dict[ApiKey, Exemption]] = {
    ApiKey.PRODUCE: Exemption(
        VersionRange(0, 13),
        "librdkafka before 2.8 turns compression off unless version 0 is listed (KAFKA-18659); "
        "versions 0 to 2 carry older batch formats and are answered with UNSUPPORTED_VERSION, as Kafka 4 does",
    ),
}
"""Where what is advertised differs from what the codec knows, and why."""

SERVED: Final[dict[ApiKey, VersionRange]] = CODEC | {key: exemption.advertised for key, exemption in EXEMPTIONS.items()}
"""What ApiVersions lists for an API that is in service; a request must still lie within `CODEC`."""
