"""Where things stand on the coordination tree: ZooKeeper's layout of Kafka before KRaft, so that tools of that time can read it."""

BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
BROKER_SEQUENCE = "/brokers/seqid"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
CONFIG_CHANGES = "/config/changes"
CONFIG_TOPICS = "/config/topics"
CONFIG_BROKERS = "/config/brokers"
DELETE_TOPICS = "/admin/delete_topics"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
DEFAULT_ENTITY = "<default>"

ROOTS = (
    "/brokers",
    BROKER_IDS,
    TOPICS,
    BROKER_SEQUENCE,
    "/cluster",
    "/config",
    CONFIG_CHANGES,
    CONFIG_TOPICS,
    "/config/clients",
    "/config/users",
    CONFIG_BROKERS,
    "/config/ips",
    "/consumers",
    "/admin",
    DELETE_TOPICS,
    "/isr_change_notification",
    "/log_dir_event_notification",
    PRODUCER_ID_BLOCK,
)
"""Made at the first start, parents before children; they stay."""


def broker(broker_id: int) -> str:
    """Registration of a live broker; ephemeral."""
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    """A topic's id and the replicas of its partitions."""
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    """Parent of a topic's partitions."""
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, index: int) -> str:
    """One partition; holds nothing itself."""
    return f"{TOPICS}/{name}/partitions/{index}"


def partition_state(name: str, index: int) -> str:
    """A partition's leader, epochs and in-sync replicas."""
    return f"{TOPICS}/{name}/partitions/{index}/state"


def topic_config(name: str) -> str:
    """What a topic sets itself."""
    return f"{CONFIG_TOPICS}/{name}"


def broker_config(broker_id: int | None) -> str:
    """Dynamic configuration of a broker, or of all (None)."""
    return f"{CONFIG_BROKERS}/{DEFAULT_ENTITY if broker_id is None else broker_id}"


def broker_configs(broker_id: int) -> tuple[str, str]:
    """Both that a broker obeys: its own, and that of all."""
    return broker_config(broker_id), broker_config(None)


def delete_topic(name: str) -> str:
    """Mark on a topic that is being deleted."""
    return f"{DELETE_TOPICS}/{name}"


def config_change(name: str) -> str:
    """A notification of a changed configuration, by the name of its node."""
    return f"{CONFIG_CHANGES}/{name}"
