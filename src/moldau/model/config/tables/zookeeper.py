"""Configurations of the coordination tree, where that is in ZooKeeper."""

from moldau.model.config.definition import INT_MAX, boolean, integer, string, table
from moldau.model.config.validators import Between, ZookeeperServers, at_least

ZOOKEEPER = table(
    [
        string(
            "zookeeper.connect",
            None,
            "Servers of ZooKeeper that keep the metadata of the cluster, and the node below which it is, created if it is missing: "
            "`host:2181,host:2181/chroot`. Without a value the metadata is in a file in the first log directory, for one broker.",
            allowed=ZookeeperServers(),
            own=True,
            deviation="Kafka had it until 3.9; not required here. What is in a file is not moved to ZooKeeper: a broker "
            "refuses directories of another cluster.",
        ),
        integer(
            "zookeeper.session.timeout.ms",
            18_000,
            "How long ZooKeeper keeps the session, and with it the registration, of a broker that it does not hear from. The server may "
            "have bounds of its own (`minSessionTimeout`, `maxSessionTimeout`).",
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
