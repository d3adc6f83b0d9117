"""Configurations of replication, of the controller, of producers' state, of groups and transactions.

Those of parts that a broker of this version does not have are here because tools read them and files carry them; they say so
(`in_effect`).
"""

from moldau.model.config.definition import CLUSTER, DAY_MS, INT_MAX, ConfigDefinition, boolean, integer, items, long, short, string, table
from moldau.model.config.validators import Between, DifferentItems, OneOf, SomeOf, at_least

SEGMENT_BYTES_MIN = 1_048_576
SEGMENT_LEAST = "At least 1 MiB, as `segment.bytes` of any topic; Kafka takes less here, and cannot make the topic then."
MEMORY = "A bound of our own over all peers together; Kafka has none and takes memory until there is no more."
CAPPED = "The default is capped by the number of live brokers, so that a single broker can have the topic at all; a given number is not."
CAPPED_BY_REPLICAS = "Capped by the number of replicas."


def later(*rows: ConfigDefinition) -> list[ConfigDefinition]:
    """Rows of parts that are not there yet."""
    return [_without_effect(row) for row in rows]


def _without_effect(row: ConfigDefinition) -> ConfigDefinition:
    return ConfigDefinition(
        row.name,
        row.type,
        row.default,
        row.doc,
        row.allowed,
        row.mode,
        row.synonyms,
        row.sensitive,
        in_effect=False,
        own=row.own,
        deviation=row.deviation,
    )


COORDINATORS = table(
    [
        integer(
            "resource.configs.max.bytes",
            16_384,
            "Longest text, names and values together, of the configurations that one topic sets, or that are set for one or all brokers "
            "while they run; more fails with INVALID_CONFIG.",
            allowed=at_least(1),
            own=True,
            deviation="A bound of our own: the text is kept in memory for each topic. In Kafka the size of a request bounds it.",
        ),
        items(
            "protected.topics",
            ("__consumer_offsets", "__transaction_state", "_schemas", "_audit", "_spark_commits"),
            "Topics that hold state of the brokers, the registry, the audit or Spark jobs. Clients may not delete them, delete records "
            "from them, add partitions, or change configurations by which records are deleted or refused (`cleanup.policy` other than to "
            "`compact`, `retention.*`, `delete.retention.ms`, `max.message.bytes`, `min.insync.replicas`, "
            "`message.timestamp.before.max.ms`, `message.timestamp.after.max.ms`): POLICY_VIOLATION. "
            "Creating, reading and writing them is not restricted.",
            mode=CLUSTER,
            own=True,
            deviation="Kafka leaves this to ACLs; without authentication it guards against accidents.",
        ),
        integer("default.replication.factor", 1, "Replicas of a topic whose creator names no number.", allowed=at_least(1)),
        integer(
            "min.insync.replicas",
            1,
            "What a topic that does not set `min.insync.replicas` takes; see there.",
            allowed=at_least(1),
            mode=CLUSTER,
        ),
        integer(
            "producer.id.expiration.ms",
            DAY_MS,
            "How long the state of an idempotent producer that sends nothing is kept.",
            allowed=at_least(1),
            mode=CLUSTER,
        ),
        integer(
            "producer.ids.max",
            30_000,
            "Most producers that all partitions remember together; one counts in each partition that it writes to, twice while the log "
            "moves to another directory, and takes 600 bytes there, 1,600 once it has written five batches. A new one evicts the one that "
            "has been idle for longest; those with an open transaction are never forgotten, and where there are only such a new one is "
            "refused with POLICY_VIOLATION.",
            allowed=at_least(1),
            mode=CLUSTER,
            own=True,
            deviation=MEMORY,
        ),
        integer(
            "num.replica.fetchers",
            1,
            "Connections per broker that followers fetch by. Here one thread serves all, and a second connection would divide its work.",
            allowed=at_least(1),
            mode=CLUSTER,
            in_effect=False,
        ),
        integer(
            "replica.fetch.max.bytes",
            1_048_576,
            "Bytes of records that a follower asks for per partition; a longer batch is sent whole.",
            allowed=at_least(0),
        ),
        integer(
            "replica.fetch.response.max.bytes",
            10_485_760,
            "The same of all partitions that one request asks for together.",
            allowed=at_least(0),
        ),
        integer("replica.fetch.min.bytes", 1, "Bytes of records that a follower's fetch waits for.", allowed=at_least(1)),
        integer("replica.fetch.wait.max.ms", 500, "How long a follower's fetch waits for them.", allowed=at_least(1)),
        integer(
            "replica.fetch.backoff.ms",
            1000,
            "How long a follower waits at most before it fetches a partition again that failed; the first time a sixteenth, then twice as "
            "long each time.",
            allowed=at_least(1),
            deviation="In Kafka it always waits that long.",
        ),
        integer(
            "replica.socket.timeout.ms",
            30_000,
            "How long the answer to a follower's fetch may take; more than `replica.fetch.wait.max.ms`.",
            allowed=at_least(1),
        ),
        string(
            "replica.selector.class",
            None,
            "How a leader chooses the replica that a consumer reads from: by the consumer's `client.rack`, or itself, as without a class.",
            allowed=OneOf(*(f"org.apache.kafka.common.replica.{name}" for name in ("LeaderSelector", "RackAwareReplicaSelector"))),
            deviation="These two classes by name; there is nothing to load others with.",
        ),
        long(
            "replica.lag.time.max.ms",
            30_000,
            "A follower that for so long has not had all that its leader had leaves the in-sync set.",
            allowed=at_least(1),
        ),
        long(
            "replica.high.watermark.checkpoint.interval.ms",
            5000,
            "How often the high watermarks are written down; here together with the recovery points.",
            in_effect=False,
        ),
        integer("group.min.session.timeout.ms", 6000, "Shortest session timeout that a member may ask for."),
        integer("group.max.session.timeout.ms", 1_800_000, "Longest session timeout that a member may ask for."),
        integer(
            "group.initial.rebalance.delay.ms",
            0,
            "How long a new group waits for further members before its first rebalance.",
            deviation="0 instead of 3,000: a consumer in a test or on a laptop starts at once; set it where many start together.",
        ),
        integer("group.max.size", INT_MAX, "Most members of a group.", allowed=at_least(1)),
        integer(
            "group.max.bytes",
            8_388_608,
            "Memory that the members of one group may take: what they sent and were assigned, and 1,000 bytes for each member. Who would "
            "need more is refused like one member too many.",
            allowed=at_least(1),
            own=True,
            deviation="A bound of our own: members that send much, or take an id and never join, must not fill our memory.",
        ),
        integer(
            "groups.max",
            100_000,
            "Most groups that a broker coordinates; a new one is then refused with POLICY_VIOLATION.",
            allowed=at_least(1),
            mode=CLUSTER,
            own=True,
            deviation="A group takes about a kilobyte of memory, and an offset a quarter of that, until they expire; Kafka has no bound.",
        ),
        long(
            "groups.memory.max.bytes",
            16_777_216,
            "Memory that all groups and their members may take together. At the bound new groups and members are refused "
            "(POLICY_VIOLATION, GROUP_MAX_SIZE_REACHED); existing groups continue.",
            allowed=at_least(1),
            mode=CLUSTER,
            own=True,
            deviation=MEMORY,
        ),
        long(
            "offsets.memory.max.bytes",
            41_943_040,
            "Memory that the committed offsets of all groups may take together, with their metadata: about 270 bytes for an offset. At "
            "the bound a group may commit again what it has committed; more is refused with POLICY_VIOLATION. A partition of the "
            "offsets topic that does not fit when it is read is not served until this is raised; nothing of it is lost.",
            allowed=at_least(1),
            mode=CLUSTER,
            own=True,
            deviation=MEMORY,
        ),
        integer(
            "offset.metadata.max.bytes",
            4096,
            "Longest text that may go with a committed offset, in UTF-16 units as Kafka counts them.",
        ),
        long(
            "offsets.retention.check.interval.ms",
            600_000,
            "How often expired offsets are removed, and groups without members and offsets.",
            allowed=at_least(1),
        ),
        integer(
            "offsets.commit.timeout.ms",
            5000,
            "How long a commit waits for its replicas; then it fails with COORDINATOR_NOT_AVAILABLE.",
            allowed=at_least(1),
        ),
        integer("offsets.retention.minutes", 10_080, "How long the offsets of a group without members are kept.", allowed=at_least(1)),
        integer(
            "offsets.topic.compression.codec",
            0,
            "Codec of the batches that are appended to the offsets topic: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
            allowed=Between(0, 4),
        ),
        integer("offsets.topic.num.partitions", 50, "Partitions of the offsets topic when it is made.", allowed=at_least(1)),
        short(
            "offsets.topic.replication.factor",
            3,
            "Replicas of the offsets topic when it is made.",
            allowed=at_least(1),
            deviation=CAPPED,
        ),
        integer(
            "offsets.topic.segment.bytes",
            104_857_600,
            "Segment size of the offsets topic when it is made.",
            allowed=at_least(SEGMENT_BYTES_MIN),
            deviation=SEGMENT_LEAST,
        ),
        boolean(
            "unclean.leader.election.enable",
            False,
            "What a topic that does not set `unclean.leader.election.enable` takes; see there.",
            mode=CLUSTER,
        ),
        boolean("auto.leader.rebalance.enable", True, "Move leaderships back to the preferred replicas."),
        long("leader.imbalance.check.interval.seconds", 300, "How often that is looked at.", allowed=at_least(1)),
        integer(
            "leader.imbalance.per.broker.percentage",
            10,
            "How many of the partitions that prefer a broker may be led elsewhere before they move back, in percent.",
            allowed=at_least(0),
            own=True,
            deviation="As Apache Kafka before 4.0.",
        ),
        integer(
            "suspicion.timeout.ms",
            1500,
            "How long a broker may leave the controller's questions unanswered before others lead what it leads, while it is registered "
            "still; and the controller those of another broker before that one replaces it. A connection that is refused counts at once. "
            "Where most followers in sync, two at least, have got nothing from a leader for that long another one leads.",
            allowed=at_least(100),
            own=True,
            deviation="Kafka waits for the end of the session (`zookeeper.session.timeout.ms`).",
        ),
        *later(
            integer("replica.socket.receive.buffer.bytes", 65_536, "Size of a follower's receive buffer."),
            integer("controller.socket.timeout.ms", 30_000, "How long the controller waits for a broker's answer."),
            items(
                "group.coordinator.rebalance.protocols",
                ("classic",),
                "The rebalance protocols that groups may use.",
                allowed=SomeOf("classic", "consumer"),
                deviation="Classic groups first.",
            ),
            integer(
                "group.consumer.session.timeout.ms", 45_000, "Session timeout of members under the newer protocol.", allowed=at_least(1)
            ),
            integer("group.consumer.min.session.timeout.ms", 45_000, "Its shortest.", allowed=at_least(1)),
            integer("group.consumer.max.session.timeout.ms", 60_000, "Its longest.", allowed=at_least(1)),
            integer(
                "group.consumer.heartbeat.interval.ms", 5000, "Heartbeat interval of members under the newer protocol.", allowed=at_least(1)
            ),
            integer("group.consumer.min.heartbeat.interval.ms", 5000, "Its shortest.", allowed=at_least(1)),
            integer("group.consumer.max.heartbeat.interval.ms", 15_000, "Its longest.", allowed=at_least(1)),
            integer("group.consumer.max.size", INT_MAX, "Most members of a group under the newer protocol.", allowed=at_least(1)),
            items("group.consumer.assignors", ("uniform", "range"), "Assignors under the newer protocol.", allowed=DifferentItems()),
            string(
                "group.consumer.migration.policy",
                "bidirectional",
                "Which groups may change from one protocol to the other.",
                allowed=OneOf("disabled", "downgrade", "upgrade", "bidirectional"),
                deviation="Lower case only.",
            ),
            integer(
                "offsets.load.buffer.size",
                5_242_880,
                "Bytes per read when offsets are loaded; here they are read by the mebibyte.",
                allowed=at_least(1),
            ),
            integer(
                "transaction.state.log.load.buffer.size", 5_242_880, "Bytes per read when transactions are loaded.", allowed=at_least(1)
            ),
        ),
        integer("transaction.max.timeout.ms", 900_000, "Longest timeout that a transactional producer may ask for.", allowed=at_least(1)),
        integer(
            "transaction.partitions.max",
            10_000,
            "Most partitions of one transaction; adding more fails with POLICY_VIOLATION.",
            allowed=at_least(1),
            mode=CLUSTER,
            own=True,
            deviation="All partitions of a transaction stand in one record of the transaction topic; in Kafka it may grow too large.",
        ),
        integer(
            "transactional.ids.max",
            100_000,
            "Most transactional ids that a broker coordinates; a new one is then refused with POLICY_VIOLATION.",
            allowed=at_least(1),
            mode=CLUSTER,
            own=True,
            deviation="Each id takes memory until it expires (`transactions.memory.max.bytes` bounds it too); Kafka has no bound.",
        ),
        long(
            "transactions.memory.max.bytes",
            12_582_912,
            "Memory that all transactional ids may take together with the partitions of their transactions: about 1,300 bytes for an id, "
            "220 for each partition beyond four. At the bound new ids, and partitions beyond four, are refused with POLICY_VIOLATION. A "
            "partition of the transaction topic that does not fit when it is read is not served until this is raised; nothing is lost.",
            allowed=at_least(1),
            mode=CLUSTER,
            own=True,
            deviation=MEMORY,
        ),
        boolean(
            "transaction.partition.verification.enable",
            True,
            "Check that a partition is part of the transaction before anything is appended to it.",
            mode=CLUSTER,
        ),
        integer(
            "add.partitions.to.txn.retry.backoff.ms",
            20,
            "While a transaction is being completed, how often a partition of the next one is tried.",
            allowed=at_least(1),
        ),
        integer(
            "add.partitions.to.txn.retry.backoff.max.ms",
            100,
            "How long the coordinator retries before the client gets an error on which it retries itself.",
            allowed=at_least(0),
        ),
        integer(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            10_000,
            "How often late transactions are aborted.",
            allowed=at_least(1),
        ),
        integer(
            "transaction.remove.expired.transaction.cleanup.interval.ms",
            3_600_000,
            "How often expired ids are removed.",
            allowed=at_least(1),
        ),
        integer(
            "transaction.state.log.min.isr",
            2,
            "`min.insync.replicas` of the transaction topic.",
            allowed=at_least(1),
            deviation=CAPPED_BY_REPLICAS,
        ),
        integer("transaction.state.log.num.partitions", 50, "Partitions of the transaction topic.", allowed=at_least(1)),
        short("transaction.state.log.replication.factor", 3, "Replicas of the transaction topic.", allowed=at_least(1), deviation=CAPPED),
        integer(
            "transaction.state.log.segment.bytes",
            104_857_600,
            "Segment size of the transaction topic.",
            allowed=at_least(SEGMENT_BYTES_MIN),
            deviation=SEGMENT_LEAST,
        ),
        integer("transactional.id.expiration.ms", 7 * DAY_MS, "How long an unused transactional id is kept.", allowed=at_least(1)),
    ]
)
