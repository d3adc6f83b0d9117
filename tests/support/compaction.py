"""A log manager with a compacted log on the disk that forgets, and workers that work when told.

world = CompactionWorld()
world.append((b"k", b"1")); world.roll(); world.clean()
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from moldau.log.cleaning.cleaner import LogCleaner
from moldau.log.cleaning.planning import CleanerSettings
from moldau.log.config import LogConfig
from moldau.log.manager import LogManager
from moldau.model.identity import TopicPartition
from moldau.model.steps import drain
from moldau.protocol.records.batch import batches, encode_batch, iterate
from moldau.protocol.records.control import ControlType, EndTxnMarker
from moldau.protocol.records.header import BatchHeader, check_batch
from moldau.protocol.records.record import Record
from moldau.testing.background import FakeWorkers
from moldau.testing.disk import ForgetfulDisk
from support.logs import CLUSTER, NOW_MS, TOPIC_ID, flush

if TYPE_CHECKING:
    from moldau.log.partition_log import PartitionLog

KEY = TopicPartition("c", 0)
FOLDER = f"/data/{KEY}"
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=100_000,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=0,
    retention_ms=-1,
    index_interval_bytes=100,
    file_delete_delay_ms=1000,
    message_timestamp_after_max_ms=2**62,
)
MAP_BYTES = 1 << 24

KeyValue = tuple[bytes | None, bytes | None]


class CompactionWorld:
    """`now_ms` is the time; it moves when somebody sets it."""

    def __init__(
        self,
        config: LogConfig = CONFIG,
        *,
        map_bytes: int = MAP_BYTES,
        files: Any = None,
        directory: str = "/data",
        others: Sequence[str] = (),
    ) -> None:
        """On the disk that forgets, or on `files`. `others`: directories beside that of the log."""
        self.now_ms = NOW_MS
        self.disk = ForgetfulDisk(now_ms=lambda: self.now_ms) if files is None else files
        self.directories = [directory, *others]
        self.config = config
        self.settings = CleanerSettings(map_bytes=map_bytes, map_load_factor=1.0, io_bytes=4096)
        self.start()

    def start(self) -> None:
        """A broker starts over what the disk has."""
        self.workers = FakeWorkers(self.disk)
        self.manager = LogManager(
            self.disk,
            self.directories,
            self.config,
            broker_id=0,
            cluster_id=CLUSTER,
            random_bytes=bytes,
            topic_config=lambda _topic: self.config,
        )
        self.manager.start(self.now_ms)
        self.log: PartitionLog = self.manager.create(KEY, TOPIC_ID, self.config, self.now_ms)
        self.manager.decide_high_watermark(KEY, is_replicated=False)
        self.log.lead_epoch(self.log.latest_epoch + 1)

    def restart(self) -> None:
        """Stop in order, and start."""
        self.manager.shutdown()
        self.start()

    # Appending

    def append(
        self,
        *records: KeyValue,
        compression: int = 0,
        producer: tuple[int, int, int] = (-1, -1, -1),
        transactional: bool = False,
        timestamps: Sequence[int] | None = None,
    ) -> int:
        """One batch; its base offset. `producer`: id, epoch, sequence. Written, and seen by consumers."""
        times = [self.now_ms] * len(records) if timestamps is None else timestamps
        rows = [Record(number, time, 0, key, value, []) for number, ((key, value), time) in enumerate(zip(records, times, strict=True))]
        producer_id, epoch, sequence = producer
        batch = memoryview(
            bytearray(
                encode_batch(
                    rows,
                    compression=compression,  # type: ignore[arg-type]
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=sequence,
                    transactional=transactional,
                )
            )
        )
        offset = self.log.append_as_leader(batch, check_batch(batch), self.now_ms).base_offset
        self.write()
        return offset

    def write(self) -> None:
        """Write what is staged, and let consumers see it."""
        self.log.write_staged()
        self.log.advance_high_watermark(self.log.log_end_offset)

    def end_transaction(self, producer_id: int, epoch: int, *, commit: bool) -> int:
        """Write the marker; its offset."""
        marker = EndTxnMarker(ControlType.COMMIT if commit else ControlType.ABORT, 0)
        offset = self.log.append_marker_as_leader(producer_id, epoch, marker, self.now_ms, transaction_version=1).base_offset
        self.write()
        return offset

    def roll(self) -> None:
        """Begin a new segment; the one before is on disk."""
        self.log._appender.roll(self.now_ms)
        flush(self.log)

    def flush(self) -> None:
        """Bring everything to disk, the checkpoints too."""
        flush(self.log)
        drain(self.manager.checkpoint())

    # Cleaning

    @property
    def cleaner(self) -> LogCleaner | None:
        return self.manager.cleaner(lambda: self.workers, lambda: self.now_ms)

    def look(self) -> None:
        """Begin what is due."""
        if self.cleaner is not None:
            self.cleaner.look(self.settings)

    def clean(self) -> None:
        """All passes that are due, to their end."""
        self.look()
        self.workers.run_all()
        drain(self.manager.remove_due(self.now_ms))

    def roll_and_clean(self) -> None:
        """Everything so far is compacted, as far as transactions let it."""
        self.roll()
        self.clean()

    # Looking

    def batches(self) -> list[tuple[BatchHeader, bytes]]:
        """All batches, as fetches bring them."""
        found: list[tuple[BatchHeader, bytes]] = []
        offset = self.log.start_offset
        while (part := self.log.read(offset, 1 << 20, self.log.log_end_offset, at_least_one=True).records) is not None:
            data = part.file.pread(part.length, part.position)
            part.release()
            found += [(header, bytes(batch)) for header, batch in batches(memoryview(data))]
            offset = found[-1][0].last_offset + 1
        return found

    def records(self) -> list[Record]:
        """All records of data batches, committed or not."""
        return [
            record
            for header, batch in self.batches()
            if not header.is_control
            for record in iterate(memoryview(batch), max_decompressed_bytes=1 << 24)
        ]

    def content(self) -> dict[int, KeyValue]:
        """Key and value by offset."""
        return {record.offset: (record.key, record.value) for record in self.records()}

    def bases(self) -> list[int]:
        """Base offsets of the segments."""
        return [segment.base_offset for segment in self.log.sealed_segments()] + [self.log.active_base_offset]

    def names(self, *suffixes: str) -> list[str]:
        """Files of the log's folder with one of these endings."""
        return [name for name in self.disk.list(FOLDER) if name.endswith(suffixes or "")]

    def statistics(self) -> dict[str, Any]:
        """Of the cleaner."""
        return {} if self.cleaner is None else self.cleaner.statistics()
