"""A job as a tier of the audit: what its inputs of tracked events brought, counted as the rows are written, and how many rows went out.

Tasks count what they read, and leave it in files (`moldau.lake.reading.counting`). When the outputs have a batch, the counts of its offsets
are published, before Spark notes the batch as done: a batch that is not published is not done, and is run again, over the same offsets.
Then it is counted again, under the same guids, which the audit takes once. So the checkpoint alone decides what is published.

A topic is counted by one query of the job. It claims the topic for its checkpoint with its first batch (`moldau.audit.claims`); another
checkpoint, as after ``--fresh``, would count the same events again, and is refused before anything is written.
"""

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from moldau.audit.claims import count_guid, is_owned_by, publish, publish_claim, read_claims
from moldau.audit.tally import UNTRACKED
from moldau.audit.tiers import TierCounts
from moldau.client.partition_requests import LATEST, READ_COMMITTED
from moldau.lake.counts import Counts, added, counts_from_json, latencies_added, latencies_from_json, untracked_from_json
from moldau.lake.reading.cluster_log import ClusterLog
from moldau.lake.reading.counting import RangeCounts
from moldau.model.errors import MoldauError
from moldau.model.identity import TopicPartition
from moldau.streams.checkpoints import Checkpoint, PlannedBatch
from moldau.streams.errors import StreamError
from moldau.streams.generations import name_in
from moldau.streams.input_counts import parts_read
from moldau.streams.late import execution_of, observed
from moldau.streams.outputs import BatchNumber
from moldau.streams.points import reached
from moldau.tracking.audit_record import AuditRecord, ensure_audit_topic
from moldau.tracking.clock import now_ms
from moldau.tracking.counts import Count, CountKey, window_start

log = logging.getLogger(__name__)

ROWS_OUT: Final = "moldau output"
"""What is observed of the rows of a query, with the column of their number."""
_ROWS = "rows"
_MARK_S = 30.0


@dataclass(frozen=True, slots=True)
class TierPlan:
    """Which inputs are counted under which name."""

    tier: str
    inputs: Mapping[str, Mapping[str, int]]
    """By query and topic: the number of the input in the query's checkpoint."""

    def of_generation(self, number: int) -> "TierPlan":
        """A generation counts by itself what it reads."""
        return TierPlan(name_in(self.tier, number), self.inputs)

    @property
    def topics(self) -> list[str]:
        """All that are counted."""
        return sorted({topic for inputs in self.inputs.values() for topic in inputs})


@dataclass(slots=True)
class _TopicCount:
    """What is known of a topic that is counted."""

    query: str
    run: str | None = None
    """The checkpoint for which it is claimed; None before the first batch."""
    epoch: str = ""
    positions: Mapping[str, int] = field(default_factory=dict)
    """By partition: everything before is counted and published."""
    asked: tuple[int, Mapping[str, int]] | None = None
    """A time, and where the log ended then: when that is published, everything that the topic had at that time is."""
    mark_s: float = 0.0
    """When a mark is due, by the monotonic clock."""


class JobTier:
    """The tier of a job that runs. Used by the threads of its queries. WorldError, PeerError."""

    def __init__(self, job: str, brokers: str, plan: TierPlan) -> None:
        self._job, self._brokers, self._plan = job, brokers, plan
        self._client_id = f"moldau-stream-{job}"
        self._log = ClusterLog(brokers, self._client_id, isolation_level=READ_COMMITTED)
        self._lock = threading.Lock()
        self._found = TierCounts()
        self._counts: dict[str, _TopicCount] = {}

    def begin(self, runs: Mapping[str, str | None]) -> None:
        """Decide which query counts which topic, by the ids of the checkpoints with which the queries start. StreamError if the tier
        counts a topic for another job or checkpoint; nothing is published."""
        self._read()
        for topic in self._plan.topics:
            readers = [query for query, inputs in self._plan.inputs.items() if topic in inputs]
            owner = self._owner(topic)
            ours = [query for query in readers if owner is not None and (run := runs[query]) is not None and is_owned_by(owner, run)]
            if owner is not None and not ours:
                raise StreamError(self._refusal(topic, owner))
            counted = self._counts[topic] = _TopicCount((ours or readers)[0])
            if ours:
                counted.run, counted.epoch = runs[counted.query], self._epoch(topic)

    def of_query(self, spark: Any, query: str, outputs: Sequence[str], checkpoint: Checkpoint) -> "QueryCounts":
        """What the sink of a query counts; `outputs` are their places."""
        topics = {topic: self._plan.inputs[query][topic] for topic, counted in self._counts.items() if counted.query == query}
        last = checkpoint.committed()
        if last is not None:
            done = checkpoint.batch(last)
            for topic, number in topics.items():
                self._counts[topic].positions = _offsets(done, topic, number)
        return QueryCounts(spark, self, topics, outputs)

    def claim(self, topics: Sequence[str], run: str) -> None:
        """Before a batch: the tier is this checkpoint's for these topics, and not taken back since the batch before. StreamError."""
        with self._lock:
            self._read()
            for topic in topics:
                if self._owner(topic) is None:
                    owner = f"stream job {self._job}, checkpoint {run}"
                    publish_claim(self._brokers, self._client_id, self._plan.tier, topic, owner)
                    self._read()
                owner = self._owner(topic) or ""
                if not is_owned_by(owner, run):
                    raise StreamError(self._refusal(topic, owner))
                self._counts[topic].run, self._counts[topic].epoch = run, self._epoch(topic)

    def publish(self, batch: BatchNumber, counted: Mapping[str, "BatchCounts"], rows: Mapping[str, int]) -> None:
        """The counts of a batch by topic, and how many rows went to which places. SendError, WorldError, PeerError."""
        with self._lock:
            records = [record for topic, each in counted.items() for record in self._records(batch, topic, each)]
            for place, count in rows.items():
                key = CountKey(place, window_start(batch.planned.time_ms), *UNTRACKED)
                of_rows = Count(count, 0, 0, batch.planned.time_ms, batch.planned.time_ms)
                guid = count_guid(self._plan.tier, batch.run, batch.number, key, "")
                records.append(AuditRecord.of_counts(self._plan.tier, key, of_rows, time_ms=now_ms(), guid=guid))
            if records:
                if not counted:  # otherwise the claim is there
                    ensure_audit_topic(self._brokers)
                publish(self._brokers, self._client_id, records)
            for topic, each in counted.items():
                self._counts[topic].positions = each.ends
                self._counts[topic].mark_s = 0.0

    def mark(self) -> None:
        """Publish of each topic up to when everything is counted, if that is known and due. Called now and then; it never fails, and does
        not wait for a batch that is being published: meanwhile the job reports that it runs."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            for topic, counted in self._counts.items():
                self._mark(topic, counted)
        except MoldauError as error:
            log.warning("tier %s: up to when it has counted was not published: %s; trying again", self._plan.tier, error)
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close the connections."""
        self._log.close()

    def _read(self) -> None:
        self._found = read_claims(self._log.cluster, self._plan.topics, self._found)
        if self._plan.tier in self._found.auditors:
            raise StreamError(f"job {self._job}: tier {self._plan.tier} is an auditor's: give the job another one with tier=")

    def _owner(self, topic: str) -> str | None:
        return self._found.owners.get((self._plan.tier, topic))

    def _epoch(self, topic: str) -> str:
        return self._found.epochs.get((self._plan.tier, topic), "")

    def _refusal(self, topic: str, owner: str) -> str:
        tier = self._plan.tier
        return (
            f"job {self._job}: tier {tier} counts topic {topic} for {owner}: what other checkpoints count would be a duplication to the "
            f"audit. Give the job another one with tier=, or take those counts back: moldau audit forget --tier {tier} --topic {topic}"
        )

    def _records(self, batch: BatchNumber, topic: str, counted: "BatchCounts") -> Iterator[AuditRecord]:
        tier, epoch, time_ms = self._plan.tier, self._counts[topic].epoch, now_ms()
        for key, count in counted.counts.items():
            guid = count_guid(tier, batch.run, batch.number, key, epoch)
            yield AuditRecord.of_counts(tier, key, count, time_ms=time_ms, guid=guid, epoch=epoch)
        for start_ms, latencies in latencies_added(latencies_from_json(each, time_ms) for each in counted.parts).items():
            guid = count_guid(tier, batch.run, batch.number, ("latencies", topic, start_ms), epoch)
            yield AuditRecord.of_latencies(tier, topic, start_ms, latencies, time_ms=time_ms, guid=guid, epoch=epoch)

    def _mark(self, topic: str, counted: _TopicCount) -> None:
        if counted.run is None or (counted.asked is None and time.monotonic() < counted.mark_s):
            return
        if counted.asked is None:
            counted.asked = now_ms(), self._ends(topic)
        counted_ms, ends = counted.asked
        if any(counted.positions.get(partition, 0) < end for partition, end in ends.items()):
            return
        owner = f"stream job {self._job}, checkpoint {counted.run}"
        tier, epoch = self._plan.tier, counted.epoch
        mark = AuditRecord.of_tier(tier, topic, time_ms=now_ms(), owner=owner, counted_ms=counted_ms, epoch=epoch)
        publish(self._brokers, self._client_id, [mark])
        counted.asked, counted.mark_s = None, time.monotonic() + _MARK_S

    def _ends(self, topic: str) -> dict[str, int]:
        partitions = [TopicPartition(topic, number) for number in range(self._log.partition_counts([topic]).get(topic, 0))]
        return {str(where.partition): end for where, end in self._log.offsets(dict.fromkeys(partitions, LATEST)).items()}


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """What a batch has read of a topic."""

    counts: Counts
    parts: Sequence[Mapping[str, Any]]
    """The same by ranges, as tasks have written it."""
    ends: Mapping[str, int]
    """Up to where, by partition."""
    uncounted: Sequence[str]
    """Partitions of which no tasks have read all that the batch was to read."""


def counts_of_batch(found: RangeCounts, topic: str, number: int, batch: PlannedBatch, start: Mapping[str, Any]) -> BatchCounts:
    """Of what the tasks have left that which a batch was to read of its input with this number, from `start` on, each record once."""
    parts, uncounted = parts_read(found, topic, start, batch.inputs[number])
    tracked = added(counts_from_json(topic, each) for each in parts)
    untracked = added(untracked_from_json(topic, each, batch.time_ms) for each in parts)
    return BatchCounts({**tracked, **untracked}, parts, _offsets(batch, topic, number), uncounted)


def _offsets(batch: PlannedBatch, topic: str, number: int) -> dict[str, int]:
    """Up to where a batch reads a topic by the input with this number."""
    return {partition: offset for partition, offset in batch.inputs[number].get(topic, {}).items() if partition.isdecimal()}


class QueryCounts:
    """What one query counts, batch after batch: `begin`, then the outputs, then `publish`."""

    def __init__(self, spark: Any, tier: JobTier, topics: Mapping[str, int], outputs: Sequence[str]) -> None:
        self._spark, self._tier, self._topics, self._outputs = spark, tier, topics, outputs

    def begin(self, batch: BatchNumber) -> list[str]:
        """Before anything is written: the topics that the tasks of the batch are to count. StreamError."""
        if self._topics:
            self._tier.claim(list(self._topics), batch.run)
        return list(self._topics)

    def publish(self, batch: BatchNumber, found: RangeCounts, starts: Sequence[Mapping[str, Any]]) -> None:
        """When the outputs have the batch, of which tasks have counted these ranges. BatchError, SendError."""
        counted = {topic: counts_of_batch(found, topic, number, batch.planned, starts[number]) for topic, number in self._topics.items()}
        for partition in [name for each in counted.values() for name in each.uncounted]:
            log.warning("query %s, batch %d: not all of %s was read: the audit will miss it", batch.query, batch.number, partition)
        rows = observed(execution_of(self._spark, batch)).get(ROWS_OUT, {}).get(_ROWS, 0)
        self._tier.publish(batch, counted, dict.fromkeys(self._outputs, rows) if rows else {})
        reached("counts published")


def with_rows_counted(frame: Any) -> Any:
    """The rows of a query, so that Spark counts them on their way out."""
    from pyspark.sql import functions

    return frame.observe(ROWS_OUT, functions.count(functions.lit(1)).alias(_ROWS))
