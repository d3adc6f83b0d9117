"""Configurations of a topic. Where one is not set, its synonyms among the broker's configurations stand in."""

from moldau.model.config.definition import DAY_MS, LONG_MAX, Synonym, boolean, double, from_broker, integer, items, long, string, table
from moldau.model.config.validators import Between, OneOf, SomeOf, ThrottledReplicas, at_least

CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
MIRROR_SOURCE = "mirror.source"
NO_TIERED_STORAGE = "There is no tiered storage: the name is known so that tools which set or read it work."

TOPIC = table(
    [
        items(
            "cleanup.policy",
            ("delete",),
            "What happens to old segments: `delete` drops those past `retention.ms` or `retention.bytes`, `compact` keeps the newest "
            "record of each key. Both may be given; with neither, records stay for ever.",
            allowed=SomeOf("compact", "delete"),
            synonyms=from_broker("log.cleanup.policy"),
        ),
        integer(
            "compression.gzip.level",
            -1,
            "How hard gzip tries when the broker recompresses to it; -1 is the codec's own default.",
            allowed=Between(1, 9, also=-1),
            synonyms=from_broker("compression.gzip.level"),
        ),
        integer(
            "compression.lz4.level",
            9,
            "How hard lz4 tries when the broker recompresses to it.",
            allowed=Between(1, 17),
            synonyms=from_broker("compression.lz4.level"),
        ),
        string(
            "compression.type",
            "producer",
            "The codec of stored batches. `producer` stores what arrives as it is; with any other value the broker recompresses a "
            "batch that came in another codec, which costs it a walk over the records.",
            allowed=OneOf(*CODECS),
            synonyms=from_broker("compression.type"),
        ),
        integer(
            "compression.zstd.level",
            3,
            "How hard zstd tries when the broker recompresses to it.",
            allowed=Between(-131072, 22),
            synonyms=from_broker("compression.zstd.level"),
        ),
        long(
            "delete.retention.ms",
            DAY_MS,
            "How long a tombstone stays in a compacted topic after the pass that found nothing older of its key, so that a reader who "
            "starts at the beginning has that much time to see it; the same for markers of transactions.",
            allowed=at_least(0),
            synonyms=from_broker("log.cleaner.delete.retention.ms"),
        ),
        long(
            "file.delete.delay.ms",
            60_000,
            "Time between renaming a dropped segment to `.deleted` and removing its file; readers that hold it finish meanwhile.",
            allowed=at_least(0),
            synonyms=from_broker("log.segment.delete.delay.ms"),
        ),
        long(
            "flush.messages",
            LONG_MAX,
            "Bring a partition to disk after this many records. With 1 every acknowledgement waits for the disk; requests that arrive "
            "together share one sync.",
            allowed=at_least(1),
            synonyms=from_broker("log.flush.interval.messages"),
        ),
        long(
            "flush.ms",
            LONG_MAX,
            "Bring a partition to disk when its oldest record that is not there yet is this old.",
            allowed=at_least(0),
            synonyms=from_broker("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        ),
        items(
            "follower.replication.throttled.replicas",
            (),
            "Replicas whose fetching counts against the follower's replication quota, as `partition:broker` pairs, or `*` for all.",
            allowed=ThrottledReplicas(),
        ),
        integer(
            "index.interval.bytes",
            4096,
            "Bytes of log between two entries of the offset index. Smaller finds a position with less scanning and makes larger indexes.",
            allowed=at_least(0),
            synonyms=from_broker("log.index.interval.bytes"),
        ),
        items(
            "leader.replication.throttled.replicas",
            (),
            "Replicas to which sending counts against the leader's replication quota, as `partition:broker` pairs, or `*` for all.",
            allowed=ThrottledReplicas(),
        ),
        long(
            "local.retention.bytes",
            -2,
            NO_TIERED_STORAGE,
            allowed=at_least(-2),
            synonyms=from_broker("log.local.retention.bytes"),
            in_effect=False,
        ),
        long(
            "local.retention.ms",
            -2,
            NO_TIERED_STORAGE,
            allowed=at_least(-2),
            synonyms=from_broker("log.local.retention.ms"),
            in_effect=False,
        ),
        long(
            "max.compaction.lag.ms",
            LONG_MAX,
            "A record of a compacted topic becomes due for compaction at the latest after this time, whatever the dirty ratio; the log "
            "begins a new segment by then.",
            allowed=at_least(1),
            synonyms=from_broker("log.cleaner.max.compaction.lag.ms"),
        ),
        integer(
            "max.message.bytes",
            1_048_588,
            "Largest batch, as it is compressed, that the topic takes; a larger one fails with MESSAGE_TOO_LARGE.",
            allowed=at_least(0),
            synonyms=from_broker("message.max.bytes"),
        ),
        long(
            "message.timestamp.after.max.ms",
            3_600_000,
            "How far a producer's timestamp may lie ahead of the broker's clock; beyond it the batch fails with INVALID_TIMESTAMP. "
            "Not looked at when `message.timestamp.type` is LogAppendTime.",
            allowed=at_least(0),
            synonyms=from_broker("log.message.timestamp.after.max.ms"),
        ),
        long(
            "message.timestamp.before.max.ms",
            LONG_MAX,
            "How far a producer's timestamp may be before the broker's clock; beyond it the batch fails with INVALID_TIMESTAMP. Not "
            "looked at when `message.timestamp.type` is LogAppendTime.",
            allowed=at_least(0),
            synonyms=from_broker("log.message.timestamp.before.max.ms"),
        ),
        string(
            "message.timestamp.type",
            "CreateTime",
            "Whose time a record carries: the producer's (`CreateTime`) or the broker's at the append (`LogAppendTime`).",
            allowed=OneOf("CreateTime", "LogAppendTime"),
            synonyms=from_broker("log.message.timestamp.type"),
        ),
        double(
            "min.cleanable.dirty.ratio",
            0.5,
            "Share of a log that is not compacted yet from which on compacting it is worth while.",
            allowed=Between(0, 1),
            synonyms=from_broker("log.cleaner.min.cleanable.ratio"),
        ),
        long(
            "min.compaction.lag.ms",
            0,
            "A record of a compacted topic stays untouched for at least this time. Not larger than `max.compaction.lag.ms`.",
            allowed=at_least(0),
            synonyms=from_broker("log.cleaner.min.compaction.lag.ms"),
        ),
        integer(
            "min.insync.replicas",
            1,
            "With acks=all, how many replicas must be in sync, at most all, to take a write; with fewer it fails with NOT_ENOUGH_REPLICAS.",
            allowed=at_least(1),
            synonyms=from_broker("min.insync.replicas"),
        ),
        string(
            MIRROR_SOURCE,
            "",
            "What this topic is a mirror of: cluster id and topic id of the source. Given when the topic is created, and removed "
            "when the mirror is promoted; it cannot be altered. While it is set, only the mirror writes to the topic, and records cannot "
            "be deleted from it on request.",
            own=True,
            deviation="Kafka has no mirrors that keep offsets.",
        ),
        boolean(
            "preallocate",
            False,
            "Reserve a segment's full size on disk when it is made.",
            synonyms=from_broker("log.preallocate"),
            in_effect=False,
        ),
        string(
            "produce.validation",
            "header",
            "How far the broker looks into a batch that it stores as it came. `header` trusts size, CRC, record count and last offset "
            "delta of the batch header; `records` walks every record and refuses a batch that does not hold what its header says.",
            allowed=OneOf("header", "records"),
            synonyms=from_broker("log.produce.validation"),
            own=True,
            deviation="Kafka walks the records of every batch. Work per batch, not per record, is where the rate of producing comes from.",
        ),
        boolean("remote.log.copy.disable", False, NO_TIERED_STORAGE, in_effect=False),
        boolean("remote.log.delete.on.disable", False, NO_TIERED_STORAGE, in_effect=False),
        boolean(
            "remote.storage.enable",
            False,
            NO_TIERED_STORAGE + " Turning it on is refused, as by a Kafka broker without tiered storage.",
            allowed=OneOf(False),
            in_effect=False,
            deviation="Only `false`, since there is no tiered storage.",
        ),
        long(
            "retention.bytes",
            -1,
            "Size of a partition above which its oldest segments are dropped; -1 sets no limit. Needs `delete` in `cleanup.policy`.",
            synonyms=from_broker("log.retention.bytes"),
        ),
        long(
            "retention.ms",
            7 * DAY_MS,
            "Age, by its newest timestamp, from which a segment is dropped; -1 keeps it for ever. Needs `delete` in `cleanup.policy`.",
            allowed=at_least(-1),
            synonyms=from_broker("log.retention.ms", Synonym("log.retention.minutes", 60_000), Synonym("log.retention.hours", 3_600_000)),
        ),
        integer(
            "segment.bytes",
            1_073_741_824,
            "Size of a segment file at which the log begins a new one. Retention and compaction act on whole segments.",
            allowed=at_least(1_048_576),
            synonyms=from_broker("log.segment.bytes"),
        ),
        integer(
            "segment.index.bytes",
            10_485_760,
            "Largest size of each index of a segment; a full index also makes the log begin a new segment.",
            allowed=at_least(4),
            synonyms=from_broker("log.index.size.max.bytes"),
        ),
        long(
            "segment.jitter.ms",
            0,
            "Random time taken off `segment.ms`, so that many partitions do not roll at once.",
            allowed=at_least(0),
            synonyms=from_broker("log.roll.jitter.ms", Synonym("log.roll.jitter.hours", 3_600_000)),
        ),
        long(
            "segment.ms",
            7 * DAY_MS,
            "Age of a segment at which the log begins a new one even if it is not full, so that retention can reach old records.",
            allowed=at_least(1),
            synonyms=from_broker("log.roll.ms", Synonym("log.roll.hours", 3_600_000)),
        ),
        boolean(
            "unclean.leader.election.enable",
            False,
            "Whether a replica that is not in sync may become leader when no other is left, at the price of lost records.",
            synonyms=from_broker("unclean.leader.election.enable"),
        ),
        string(
            "visibility",
            "high-watermark",
            "What consumers may read. `high-watermark`: what all in-sync replicas have. `flushed`: of that, only what is on this "
            "broker's disk; set `flush.messages` or `flush.ms` with it, or nothing is shown before the segment is closed.",
            allowed=OneOf("high-watermark", "flushed"),
            synonyms=from_broker("log.visibility"),
            own=True,
            deviation="The rule of the 2011 paper that a message is exposed only after it is flushed, beside Kafka's rule.",
        ),
    ]
)
