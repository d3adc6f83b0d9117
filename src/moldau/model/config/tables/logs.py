"""Configurations of the log: where it lies, when it rolls, flushes, drops, compacts. Most are what a topic takes that sets nothing."""

from moldau.model.config.definition import CLUSTER, DAY_MS, LONG_MAX, Synonym, boolean, double, integer, items, long, string, table
from moldau.model.config.tables.topic import CODECS
from moldau.model.config.validators import Between, DifferentItems, OneOf, SomeOf, at_least

HOUR = 3_600_000
NO_TIERED_STORAGE = "There is no tiered storage: the name is known so that tools which read it work."


def default_of(topic_name: str) -> str:
    """Description of a configuration that a topic can override."""
    return f"What a topic that does not set `{topic_name}` takes; see there."


LOGS = table(
    [
        items(
            "log.dirs",
            None,
            "Directories for partitions; a new partition goes to the one with fewest. Where not set, `log.dir`.",
            allowed=DifferentItems(),
            synonyms=(Synonym("log.dir"),),
        ),
        items(
            "log.dir",
            ("moldau-data",),
            "Directory for partitions, when there is one.",
            allowed=DifferentItems(),
            deviation="A directory where the broker is started instead of one under /tmp, which systems empty.",
        ),
        integer("num.partitions", 1, "Partitions of a topic whose creator names no number.", allowed=at_least(1)),
        boolean("auto.create.topics.enable", True, "Create a topic that a client asks about and that is not there."),
        boolean("delete.topic.enable", True, "Whether topics can be deleted; if not, deleting fails with TOPIC_DELETION_DISABLED."),
        integer(
            "partitions.per.request.max",
            10_000,
            "Most partitions that one request may create; beyond it the topic fails with POLICY_VIOLATION.",
            allowed=at_least(1),
            own=True,
            deviation="Kafka has the same bound without a name.",
        ),
        integer(
            "max.partitions",
            10_000,
            "Most partitions of this broker; beyond it creating fails with POLICY_VIOLATION.",
            allowed=at_least(1),
            mode=CLUSTER,
            own=True,
            deviation="A bound of our own: any client may create topics by asking about them.",
        ),
        integer("log.segment.bytes", 1_073_741_824, default_of("segment.bytes"), allowed=at_least(1_048_576), mode=CLUSTER),
        long(
            "log.roll.ms",
            None,
            default_of("segment.ms"),
            allowed=at_least(1),
            mode=CLUSTER,
            synonyms=(Synonym("log.roll.hours", HOUR),),
        ),
        integer("log.roll.hours", 168, "`log.roll.ms` in hours, where that is not set.", allowed=at_least(1)),
        long(
            "log.roll.jitter.ms",
            None,
            default_of("segment.jitter.ms"),
            allowed=at_least(0),
            mode=CLUSTER,
            synonyms=(Synonym("log.roll.jitter.hours", HOUR),),
        ),
        integer("log.roll.jitter.hours", 0, "`log.roll.jitter.ms` in hours, where that is not set.", allowed=at_least(0)),
        long(
            "log.retention.ms",
            None,
            default_of("retention.ms"),
            allowed=Between(1, also=-1),
            mode=CLUSTER,
            synonyms=(Synonym("log.retention.minutes", 60_000), Synonym("log.retention.hours", HOUR)),
        ),
        integer(
            "log.retention.minutes",
            None,
            "`log.retention.ms` in minutes, where that is not set.",
            allowed=Between(1, also=-1),
        ),
        integer(
            "log.retention.hours",
            168,
            "`log.retention.ms` in hours, where neither that nor the minutes are set.",
            allowed=Between(1, also=-1),
        ),
        long("log.retention.bytes", -1, default_of("retention.bytes"), mode=CLUSTER),
        long("log.retention.check.interval.ms", 300_000, "How often logs are looked over for segments to drop.", allowed=at_least(1)),
        items("log.cleanup.policy", ("delete",), default_of("cleanup.policy"), allowed=SomeOf("compact", "delete"), mode=CLUSTER),
        integer("log.index.size.max.bytes", 10_485_760, default_of("segment.index.bytes"), allowed=at_least(4), mode=CLUSTER),
        integer("log.index.interval.bytes", 4096, default_of("index.interval.bytes"), allowed=at_least(0), mode=CLUSTER),
        long("log.flush.interval.messages", LONG_MAX, default_of("flush.messages"), allowed=at_least(1), mode=CLUSTER),
        long(
            "log.flush.interval.ms",
            None,
            default_of("flush.ms"),
            allowed=at_least(0),
            mode=CLUSTER,
            synonyms=(Synonym("log.flush.scheduler.interval.ms"),),
        ),
        long("log.flush.scheduler.interval.ms", LONG_MAX, "What `log.flush.interval.ms` is where it is not set.", allowed=at_least(0)),
        integer(
            "log.recovery.batches.max",
            400_000,
            "Batches that a start after a crash may have to read one by one, all logs together; each takes 2 to 3 µs. When so many are "
            "written and not on disk, logs are brought there in the background; no acknowledgement waits for that. Where many logs "
            "are written to, one with fewer than 10,000 is left alone.",
            allowed=at_least(1),
            mode=CLUSTER,
            own=True,
            deviation="Kafka leaves it to the system when data reaches the disk unless `flush.messages` or `flush.ms` is set, and after a "
            "crash reads the active segment of every log.",
        ),
        integer(
            "log.flush.offset.checkpoint.interval.ms",
            60_000,
            "How often the recovery points are written down; after a crash, recovery reads from there.",
            allowed=at_least(0),
        ),
        integer(
            "log.flush.start.offset.checkpoint.interval.ms",
            60_000,
            "How often the logs' start offsets are written down; here together with the recovery points.",
            allowed=at_least(0),
            in_effect=False,
        ),
        long("log.segment.delete.delay.ms", 60_000, default_of("file.delete.delay.ms"), allowed=at_least(0), mode=CLUSTER),
        boolean("log.preallocate", False, default_of("preallocate"), mode=CLUSTER, in_effect=False),
        integer(
            "num.recovery.threads.per.data.dir",
            2,
            "Threads per directory that recover logs after a crash.",
            allowed=at_least(1),
            mode=CLUSTER,
            in_effect=False,
        ),
        long(
            "log.dir.failure.timeout.ms",
            30_000,
            "How long a broker without working directories keeps running.",
            allowed=at_least(1),
            in_effect=False,
        ),
        string(
            "log.message.timestamp.type",
            "CreateTime",
            default_of("message.timestamp.type"),
            allowed=OneOf("CreateTime", "LogAppendTime"),
            mode=CLUSTER,
        ),
        long(
            "log.message.timestamp.before.max.ms",
            LONG_MAX,
            default_of("message.timestamp.before.max.ms"),
            allowed=at_least(0),
            mode=CLUSTER,
        ),
        long("log.message.timestamp.after.max.ms", HOUR, default_of("message.timestamp.after.max.ms"), allowed=at_least(0), mode=CLUSTER),
        integer("message.max.bytes", 1_048_588, default_of("max.message.bytes"), allowed=at_least(0), mode=CLUSTER),
        string("compression.type", "producer", default_of("compression.type"), allowed=OneOf(*CODECS), mode=CLUSTER),
        integer("compression.gzip.level", -1, default_of("compression.gzip.level"), allowed=Between(1, 9, also=-1), mode=CLUSTER),
        integer("compression.lz4.level", 9, default_of("compression.lz4.level"), allowed=Between(1, 17), mode=CLUSTER),
        integer("compression.zstd.level", 3, default_of("compression.zstd.level"), allowed=Between(-131072, 22), mode=CLUSTER),
        string(
            "log.produce.validation",
            "header",
            default_of("produce.validation"),
            allowed=OneOf("header", "records"),
            mode=CLUSTER,
            own=True,
            deviation="Goes with the topic's `produce.validation`.",
        ),
        string(
            "log.visibility",
            "high-watermark",
            default_of("visibility"),
            allowed=OneOf("high-watermark", "flushed"),
            mode=CLUSTER,
            own=True,
            deviation="Goes with the topic's `visibility`.",
        ),
        boolean("log.cleaner.enable", True, "Whether compacted topics are compacted."),
        integer(
            "log.cleaner.threads", 1, "How many logs are compacted at once, each by a worker process.", allowed=at_least(0), mode=CLUSTER
        ),
        long(
            "log.cleaner.backoff.ms",
            15_000,
            "How often to look for logs that are worth compacting, when there were none.",
            allowed=at_least(0),
            mode=CLUSTER,
        ),
        long(
            "log.cleaner.dedupe.buffer.size",
            134_217_728,
            "Memory for the maps of keys, of all workers together. A key takes 28 bytes of it, and each record one more; a log with more "
            "dirty keys is compacted in several passes.",
            mode=CLUSTER,
        ),
        double("log.cleaner.io.buffer.load.factor", 0.9, "How full a map of keys may be; more than 0.75 counts as that.", mode=CLUSTER),
        integer(
            "log.cleaner.io.buffer.size",
            524_288,
            "Memory for reading and writing, of all workers together; half of it is what one read brings.",
            allowed=at_least(0),
            mode=CLUSTER,
        ),
        double(
            "log.cleaner.io.max.bytes.per.second",
            1.7976931348623157e308,
            "How fast logs are compacted: bytes read and written, of all workers together.",
            mode=CLUSTER,
        ),
        double("log.cleaner.min.cleanable.ratio", 0.5, default_of("min.cleanable.dirty.ratio"), allowed=Between(0, 1), mode=CLUSTER),
        long("log.cleaner.delete.retention.ms", DAY_MS, default_of("delete.retention.ms"), allowed=at_least(0), mode=CLUSTER),
        long("log.cleaner.min.compaction.lag.ms", 0, default_of("min.compaction.lag.ms"), allowed=at_least(0), mode=CLUSTER),
        long("log.cleaner.max.compaction.lag.ms", LONG_MAX, default_of("max.compaction.lag.ms"), allowed=at_least(1), mode=CLUSTER),
        long("log.local.retention.bytes", -2, NO_TIERED_STORAGE, allowed=at_least(-2), mode=CLUSTER, in_effect=False),
        long("log.local.retention.ms", -2, NO_TIERED_STORAGE, allowed=at_least(-2), mode=CLUSTER, in_effect=False),
    ]
)
