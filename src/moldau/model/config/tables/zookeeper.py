"""Configurations of the coordination tree, where several brokers share it: in ZooKeeper, or in a file."""

from moldau.model.config.definition import INT_MAX, boolean, integer, string, table
from moldau.model.config.validators import Between, ZookeeperServers, at_least

ZOOKEEPER = table(
    [
        string(
            "zookeeper.connect",
            None,
            "Servers of ZooKeeper that keep the metadata of the cluster, and the node below which it is, created if it is missing: "
            "`host:2181,host:2181/chroot`. Without a value, and without `metadata.store.file`, the metadata is in a file in the first log "
            "directory, for one broker.",
            allowed=ZookeeperServers(),
            own=True,
            deviation="Kafka had it until 3.9; not required here. What is in a file is not moved to ZooKeeper: a broker "
            "refuses directories of another cluster.",
        ),
        string(
            "metadata.store.file",
            None,
            "File that keeps the metadata of the cluster for all its brokers, which run on this host as processes of their own: each has "
            "the same value, and a `broker.id` of its own. Created if it is missing, not its directory; on a local file system. The "
            "sessions of brokers last `zookeeper.session.timeout.ms`.",
            own=True,
            deviation="Of our own. Not together with `zookeeper.connect`.",
        ),
        integer(
            "zookeeper.session.timeout.ms",
            18_000,
            "How long the session, and with it the registration, of a broker is kept that is not heard from. ZooKeeper may have bounds of "
            "its own (`minSessionTimeout`, `maxSessionTimeout`). With `metadata.store.file` the session of a process that ends is over at "
            "once; this holds for one that is stopped, or hangs.",
            allowed=Between(100, INT_MAX),
            own=True,
            deviation="Kafka had it until 3.9. At least 100.",
        ),
        integer(
            "zookeeper.connection.timeout.ms",
            None,
            "How long a start waits for a connection to ZooKeeper before it gives up; without a value as long as the session timeout.",
            allowed=at_least(1),
            own=True,
            deviation="Kafka had it until 3.9. At least 1.",
        ),
        integer(
            "zookeeper.max.in.flight.requests",
            10,
            "How many requests are sent to ZooKeeper before the first is answered.",
            allowed=Between(1, 200),
            own=True,
            deviation="Kafka had it until 3.9. At most 200: the client library blocks with more.",
        ),
        boolean(
            "zookeeper.set.acl",
            False,
            "Whether new nodes can be changed only with this broker's credentials, and those with secrets only be read with them; needs "
            "`zookeeper.digest.file`.",
            own=True,
            deviation="Kafka had it until 3.9.",
        ),
        string(
            "zookeeper.digest.file",
            None,
            "File with the line `user:password` by which the broker authenticates to ZooKeeper (scheme `digest`). All brokers of a cluster "
            "need the same.",
            own=True,
            deviation="In place of a JAAS file of Java. The password is sent in the clear.",
        ),
    ]
)
