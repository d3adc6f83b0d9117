"""`_stream_state`: made, written and read. A compacted topic of one partition; the last record of a key counts."""

import logging
import time
from collections.abc import Callable, Mapping

from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.client.errors import RequestFailedError
from moldau.client.fetched_batches import checked_batches
from moldau.client.partition_requests import EARLIEST, LATEST, FetchLimits
from moldau.lake.writing.producing import BatchSender, DeliveryError, PartitionBatch
from moldau.model.errors import ErrorCode, WorldError
from moldau.model.identity import TopicPartition
from moldau.protocol.records.batch import RecordBatchBuilder, iterate
from moldau.streams.generations import JobGenerations, decode_generations
from moldau.streams.reports import JobOrder, JobReport, decode_key, decode_order, decode_report
from moldau.tracking.clock import now_ms

log = logging.getLogger(__name__)

STATE = TopicPartition("_stream_state", 0)
_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(4 << 20), "min.cleanable.dirty.ratio": "0.1"}
"""It is read from the beginning, and reports come every few seconds: what is overwritten is soon removed."""
_BYTES_MAX = 16 << 20
_READ_S = 30.0
_PAUSE_S = 0.05


class StateBoard:
    """What `_stream_state` has of all jobs, record after record."""

    def __init__(self) -> None:
        self._processes: dict[str, dict[str, JobReport]] = {}
        self._generations: dict[str, JobGenerations] = {}
        self.orders: dict[str, JobOrder] = {}
        """By job."""

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """The next record. One that cannot be read is passed over, with a line in the log."""
        try:
            found = decode_key(key or b"")
            if found.is_generations:
                if value is None:
                    self._generations.pop(found.job, None)
                else:
                    self._generations[found.job] = decode_generations(value)
            elif found.instance is None:
                self.orders.pop(found.job, None)
                if value is not None:
                    self.orders[found.job] = decode_order(value)
            else:
                processes = self._processes.setdefault(found.job, {})
                processes.pop(found.instance, None)
                if value is not None:
                    processes[found.instance] = decode_report(value)
        except ValueError as error:
            log.warning("record of %s cannot be read: %s", STATE.topic, error)

    @property
    def jobs(self) -> list[str]:
        """Those that have ever run."""
        return sorted(job for job, processes in self._processes.items() if processes)

    def process_of(self, job: str) -> JobReport | None:
        """The process that took the job over last."""
        return max(self._processes.get(job, {}).values(), key=lambda each: each.epoch, default=None)

    def generations_of(self, job: str) -> JobGenerations:
        """Which generation of a job's checkpoints and outputs is the current one."""
        return self._generations.get(job, JobGenerations())

    def successors_of(self, topic: str) -> list[tuple[str, str]]:
        """Jobs that wrote a topic in a former generation and write to it no more, each with the topic that it writes now instead."""
        found = []
        for job, known in sorted(self._generations.items()):
            of_topics = [each for each in known.places if each.kind == "topic"]
            names = {each.output for each in of_topics if each.place == topic and each.end is not None}
            found += [(job, each.place) for each in of_topics if each.output in names and each.end is None]
        return found

    def processes(self, job: str) -> list[JobReport]:
        """All that have a record."""
        return list(self._processes.get(job, {}).values())


class StateTopic:
    """The topic in a cluster. One thread uses it at a time. WorldError, PeerError."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "moldau-stream",
        timeout_s: float = 30.0,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.cluster = Cluster(bootstrap, client_id=client_id, timeout_s=timeout_s)
        self._sender = BatchSender(bootstrap, client_id=client_id, timeout_s=timeout_s, request_timeout_ms=int(timeout_s * 1000))
        self._position: int | None = None
        self._monotonic, self._sleep = monotonic, sleep
        self.board = StateBoard()

    def exists(self) -> bool:
        """Whether any job has run in this cluster."""
        return not self.cluster.metadata([STATE.topic]).topics[STATE.topic].error

    def read_if_there(self) -> StateBoard:
        """What jobs have written, as `read`; an empty board where none has run."""
        return self.read() if self.exists() else StateBoard()

    def ensure(self) -> None:
        """Make it if it is missing, with as many replicas as the brokers make by default."""
        if self.exists():
            return
        try:
            Admin(self.cluster).create_topic(STATE.topic, 1, configs=_CONFIGS)
        except RequestFailedError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def write(self, records: Mapping[bytes, bytes | None]) -> None:
        """Write records; all replicas that are in sync have them then."""
        builder = RecordBatchBuilder()
        for key, value in records.items():
            builder.append(now_ms(), key, value)
        self._sender.send({STATE: PartitionBatch(builder.build(), range(len(records)))}, None)
        try:
            self._sender.wait()
        except DeliveryError as error:
            raise error.cause from error

    def read(self) -> StateBoard:
        """The board with all records up to where the topic ends now."""
        end = self.cluster.list_offsets({STATE: LATEST})[STATE].offset
        start = self.cluster.list_offsets({STATE: EARLIEST})[STATE].offset
        if self._position is None or not start <= self._position <= end:  # the first time, or the topic was made again
            self._position, self.board = start, StateBoard()
        limits = FetchLimits(partition_max_bytes=_BYTES_MAX, max_bytes=_BYTES_MAX)
        deadline = self._monotonic() + _READ_S
        while self._position < end:
            before = self._position
            fetched = self.cluster.fetch(STATE.topic, STATE.partition, before, limits)
            for header, batch in checked_batches(STATE, fetched, before):
                self._position = header.last_offset + 1
                for record in iterate(batch, max_decompressed_bytes=_BYTES_MAX, with_headers=False):
                    if record.offset >= before:
                        self.board.take(record.key, record.value)
            if self._position > before:
                continue
            if fetched.high_watermark >= end:  # compaction left nothing up to the end
                self._position = end
            elif self._monotonic() > deadline:
                raise WorldError(f"partition {STATE}: its leader shows nothing from offset {before} to {end}", retriable=True)
            else:
                self._sleep(_PAUSE_S)
        return self.board

    def close(self) -> None:
        """Close the connections."""
        self._sender.close()
        self.cluster.close()
