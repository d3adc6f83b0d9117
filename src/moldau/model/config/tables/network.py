"""Configurations of the broker's identity, its listeners, connections and requests."""

from moldau.model.config.definition import CLUSTER, INT_MAX, LONG_MAX, Synonym, boolean, integer, items, long, string, table
from moldau.model.config.listeners import ListenerAddresses, ProtocolMap
from moldau.model.config.validators import AddressLimits, OneOf, at_least

THREADS = "One thread runs the broker and a small pool does what waits for the disk; the number is known so that tools which read it work."

NETWORK = table(
    [
        integer(
            "broker.id",
            0,
            "The broker's number in its cluster.",
            allowed=at_least(0),
            synonyms=(Synonym("node.id"),),
            deviation="0 instead of a generated number, so that a broker on a laptop needs no setting.",
        ),
        integer(
            "node.id",
            0,
            "Newer name of `broker.id`; either may be set.",
            allowed=at_least(0),
            synonyms=(Synonym("broker.id"),),
            deviation="Not required: 0 when neither name is set.",
        ),
        string(
            "broker.rack",
            None,
            "The rack or zone of the broker, which clients receive with its metadata. Replicas of a partition are in as many as there are.",
            deviation="Where brokers share their metadata, by `zookeeper.connect` or `metadata.store.file`, one without a rack takes the "
            "name of its host: replicas are on several hosts where there are.",
        ),
        items(
            "listeners",
            ("PLAINTEXT://localhost:9092",),
            "Addresses to listen on, each with the name of its listener. An empty host is every interface, `localhost` its IPv4 and IPv6 "
            "address, port 0 picks a free one.",
            allowed=ListenerAddresses(),
            deviation="Loopback instead of every interface: nothing is open to the network until it is configured. PLAINTEXT only, "
            "read at the start only, and no two listeners share a port.",
        ),
        items(
            "advertised.listeners",
            None,
            "Addresses that clients receive, by listener: a client receives that of the listener that it connected to.",
            allowed=ListenerAddresses(),
            deviation="PLAINTEXT only. A listener that is not named advertises its own address, or on every interface the one that the "
            "client connected to. Port 0 is the port that the listener has got.",
        ),
        integer(
            "socket.request.max.bytes",
            104_857_600,
            "Largest request frame; a peer that announces a larger one is cut off before anything is allocated.",
            allowed=at_least(1),
        ),
        integer(
            "request.decoded.max.bytes",
            4_194_304,
            "Largest request of any API but Produce, and in a Produce request the most bytes beside its records; a peer that sends more is "
            "cut off.",
            allowed=at_least(1),
            own=True,
            deviation="A bound of our own: a decoded request takes many times the memory of its bytes, so that one of "
            "`socket.request.max.bytes` could take gigabytes. Records are not decoded.",
        ),
        integer(
            "request.decoded.elements.max",
            50_000,
            "Most elements of all arrays of one request (topics, partitions, groups, ...) together; a peer that sends more is cut off. "
            "A client that commits, or asks for, the offsets of more partitions at once needs more.",
            allowed=at_least(1),
            own=True,
            deviation="A bound of our own: an element may take one byte of a request and a thousand of memory, with its answer.",
        ),
        integer("socket.send.buffer.bytes", 102_400, "Size of a socket's send buffer (SO_SNDBUF); -1 leaves it to the system."),
        integer("socket.receive.buffer.bytes", 102_400, "Size of a socket's receive buffer (SO_RCVBUF); -1 leaves it to the system."),
        integer("socket.listen.backlog.size", 50, "Connections that may wait to be accepted.", allowed=at_least(1)),
        integer(
            "max.connections",
            -1,
            "Connections at once; further ones are closed. -1: what the limit on open files (RLIMIT_NOFILE) leaves beside the files of the "
            "logs, at most 50,000.",
            allowed=at_least(-1),
            mode=CLUSTER,
            deviation="What the process can have open instead of 2147483647.",
        ),
        integer(
            "max.connections.per.ip",
            INT_MAX,
            "Connections at once from one address; further ones are closed.",
            allowed=at_least(0),
            mode=CLUSTER,
        ),
        string(
            "max.connections.per.ip.overrides",
            "",
            "Exceptions to `max.connections.per.ip`, as `address:number` with commas between.",
            allowed=AddressLimits(),
            mode=CLUSTER,
        ),
        integer(
            "max.connection.creation.rate",
            INT_MAX,
            "New connections per second.",
            allowed=at_least(0),
            mode=CLUSTER,
            in_effect=False,
        ),
        long("connections.max.idle.ms", 600_000, "A connection that is silent for this long is closed; negative never closes one."),
        integer(
            "connection.max.in.flight.requests",
            100,
            "Requests of one connection that may wait for their answer at once. At the bound nothing more is read from it.",
            allowed=at_least(1),
            own=True,
            deviation="A bound of our own: Kafka answers one request of a connection at a time.",
        ),
        integer(
            "connection.queued.max.bytes",
            4_194_304,
            "Bytes of answers that one connection may leave unread in our memory. At the bound nothing more is read from it.",
            allowed=at_least(1),
            own=True,
            deviation="A bound of our own: a client that sends and never reads must not grow our memory.",
        ),
        integer(
            "max.decompressed.bytes",
            104_857_600,
            "Largest batch after decompression, where the broker has to read its records. In addition a batch becomes at most 16 times "
            "`max.message.bytes` of its topic (1 MiB where that is less). A produced one that becomes more fails with MESSAGE_TOO_LARGE; "
            "a look-up by time answers the first offset of one that is stored.",
            allowed=at_least(1),
            mode=CLUSTER,
            own=True,
            deviation="A bound of our own against batches that decompress without end.",
        ),
        integer(
            "record.headers.max",
            10_000,
            "Headers of one record, where the broker looks into produced batches: in compacted topics, with `produce.validation=records`, "
            "and with bounds of time. More fail with INVALID_RECORD. Moldau's own readers take as many as the default.",
            allowed=at_least(0),
            mode=CLUSTER,
            own=True,
            deviation="A bound of our own: a few bytes can decompress to millions of headers.",
        ),
        integer(
            "batch.headers.max",
            1_000_000,
            "Headers of all records of one batch; otherwise as `record.headers.max`.",
            allowed=at_least(0),
            mode=CLUSTER,
            own=True,
            deviation="A bound of our own: a few bytes can decompress to millions of headers.",
        ),
        integer(
            "delayed.requests.max",
            100_000,
            "Partitions of all fetch requests that wait for more data; at the bound further requests are answered at once.",
            allowed=at_least(1),
            own=True,
            deviation="A bound of our own; Kafka's purgatory has none.",
        ),
        integer(
            "admin.requests.max",
            1000,
            "Requests that wait for the controller to create, grow, delete or configure; at the bound further ones get REQUEST_TIMED_OUT.",
            allowed=at_least(1),
            mode=CLUSTER,
            own=True,
            deviation="A bound of our own.",
        ),
        integer(
            "shutdown.timeout.ms",
            10_000,
            "How long a stopping broker lets requests in flight finish before it closes their connections. Half of it at most is for "
            "handing leaderships over. "
            "Three quarters of it, from the signal on, are for flushing logs to disk; the next start recovers those that are left then.",
            allowed=at_least(0),
            own=True,
            deviation="The limit of a graceful stop, which Kafka does not have.",
        ),
        integer(
            "shutdown.forced.after.ms",
            10_000,
            "How long after `shutdown.timeout.ms` a process that was asked to stop (SIGTERM) may still run. Then it ends by force, "
            "with one line in the log and exit code 70; the next start recovers its logs as after a crash.",
            allowed=at_least(0),
            own=True,
            deviation="A limit of our own: a stop always ends, also when something hangs.",
        ),
        integer("fetch.max.bytes", 57_671_680, "Most bytes of one fetch answer, whatever the client allows.", allowed=at_least(1024)),
        integer(
            "max.incremental.fetch.session.cache.slots",
            1000,
            "Most incremental fetch sessions. A consumer for which there is no room sends full requests.",
            allowed=at_least(0),
        ),
        integer(
            "fetch.session.partitions.max",
            100_000,
            "Most partitions of all incremental fetch sessions together.",
            allowed=at_least(0),
            own=True,
            deviation="A bound of our own: Kafka counts sessions, each of which may have any number of partitions.",
        ),
        integer(
            "max.request.partition.size.limit",
            2000,
            "Most partitions in one DescribeTopicPartitions answer; the rest follows on the client's next request.",
            allowed=at_least(1),
        ),
        integer("request.timeout.ms", 30_000, "How long a broker tries to have the controller, another broker, do what it needs."),
        integer("queued.max.requests", 500, THREADS, allowed=at_least(1), in_effect=False),
        long(
            "queued.max.request.bytes",
            16_777_216,
            "Memory of requests that have come in part, or wait to be handled, over all connections; -1 sets no limit. At the bound only "
            "short requests are read as usual, and those that need no more memory; longer ones one at a time.",
            allowed=at_least(-1),
            deviation="16 MiB instead of no limit: peers that send parts of requests must not grow our memory. Only what has come counts, "
            "not the size a request announces, and short requests are still read at the bound.",
        ),
        integer(
            "incomplete.request.timeout.ms",
            10_000,
            "How long a request may be incomplete while `queued.max.request.bytes` is reached and others wait for memory; then its "
            "connection is closed, one that still comes with a 64th of its memory in a second last.",
            allowed=at_least(1),
            own=True,
            deviation="A bound of our own: Kafka waits for as long as the connection may be idle.",
        ),
        integer("num.network.threads", 3, THREADS, allowed=at_least(1), mode=CLUSTER, in_effect=False),
        integer("num.io.threads", 8, THREADS, allowed=at_least(1), mode=CLUSTER, in_effect=False),
        integer("background.threads", 10, THREADS, allowed=at_least(1), mode=CLUSTER, in_effect=False),
        string(
            "security.inter.broker.protocol",
            "PLAINTEXT",
            "How brokers talk to each other.",
            allowed=OneOf("PLAINTEXT"),
            in_effect=False,
            deviation="PLAINTEXT only.",
        ),
        string(
            "inter.broker.listener.name",
            None,
            "The listener that other brokers use; its address is `host` and `port` of the broker's registration.",
            deviation="When not set, the listener `PLAINTEXT`, else the first.",
        ),
        string(
            "listener.security.protocol.map",
            "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "The security protocol of each listener, by its name.",
            allowed=ProtocolMap(),
            deviation="Listeners map to PLAINTEXT only, and it is read at the start only.",
        ),
        boolean("controlled.shutdown.enable", True, "Hand leaderships over to other brokers before stopping."),
        integer(
            "controlled.shutdown.max.retries",
            3,
            "How often a stopping broker asks the controller again to move leaderships that it still has.",
            allowed=at_least(0),
            own=True,
            deviation="Kafka had it until 3.9. Attempts that do not reach a controller are not counted: `shutdown.timeout.ms` bounds them.",
        ),
        long(
            "controlled.shutdown.retry.backoff.ms",
            5000,
            "How long a stopping broker waits before it asks again; it stops where half of `shutdown.timeout.ms` is over by then.",
            allowed=at_least(0),
            own=True,
            deviation="Kafka had it until 3.9.",
        ),
        integer("quota.window.num", 11, "Samples kept for client quotas.", allowed=at_least(1), in_effect=False),
        integer("quota.window.size.seconds", 1, "Length of a sample for client quotas.", allowed=at_least(1), in_effect=False),
        long(
            "leader.replication.throttled.rate",
            LONG_MAX,
            "Bytes per second that a leader sends to throttled replicas.",
            allowed=at_least(0),
            mode=CLUSTER,
        ),
        long(
            "follower.replication.throttled.rate",
            LONG_MAX,
            "Bytes per second that a follower fetches for throttled replicas.",
            allowed=at_least(0),
            mode=CLUSTER,
        ),
        long(
            "replica.alter.log.dirs.io.max.bytes.per.second",
            LONG_MAX,
            "Bytes per second that are copied of logs that move between log directories, of all together.",
            allowed=at_least(0),
            mode=CLUSTER,
            own=True,
            deviation="Kafka has it by this name, and does not list it.",
        ),
    ]
)
