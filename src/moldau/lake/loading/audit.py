"""Counts of a load for the audit: published after the commit, under a tier that one job and table claim.

How tiers are claimed is in `moldau.audit.claims`. A note beside the table has up to where the audit topic was read, and under which epoch
the counts are.

The counts are in the table's log, in the version that holds the rows they count, so they are as durable as the rows. Publishing is a
copy that may be made twice: the guid of each audit record is made from the table, the version and what is counted, and the audit takes
each guid once. A note beside the table has the newest version whose counts were all published; a load publishes those above it again.
"""

import json
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b

from moldau.audit.claims import count_guid, is_owned_by, publish, publish_claim, read_claims
from moldau.audit.tiers import TierCounts
from moldau.client.cluster import Cluster
from moldau.lake import points
from moldau.lake.counts import COUNTS_KEY, aside_from_json, counts_from_json, latencies_from_json, untracked_from_json
from moldau.lake.loading.errors import LoadError
from moldau.lake.loading.job import LoadJob
from moldau.lake.tables.format import TableCommit, TableFormat
from moldau.lake.tables.places.addresses import absolute, place_of
from moldau.model.errors import MoldauError
from moldau.model.identity import TopicPartition
from moldau.tracking.audit_record import AUDIT_TOPIC, AuditRecord, ensure_audit_topic
from moldau.tracking.clock import now_ms

FOLDER = "_moldau"
"""Beside the data files; its name begins with an underscore so that readers of the folder leave it alone."""


class OtherTierError(LoadError):
    """The tier counts another load of the topic."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A tier that is this job's: the epoch of its counts, and up to where the audit topic was read."""

    epoch: str
    audit_id: str
    positions: dict[int, int]


def owner_of(job: LoadJob, table_id: str) -> str:
    """The owner of counts, as it is published. The last word identifies it; the others are for people."""
    return f"job {job.name}, table {absolute(job.table)}, id {table_id}"


def check_unclaimed(job: LoadJob, cluster: Cluster) -> None:
    """Check that no other job counts the topic under the job's tier; for a job whose table does not exist yet, so that no claim is its own.
    OtherTierError; WorldError, PeerError."""
    found = _read(cluster, job, None)
    owner = found.owners.get((str(job.tier), job.topic))
    if owner is not None:
        raise OtherTierError(refusal(job, owner))
    _check_no_auditor(job, found)


def own_tier(job: LoadJob, table_id: str, cluster: Cluster) -> Claim:
    """Claim the job's tier for the topic, unless it is claimed. OtherTierError; WorldError, PeerError."""
    known = claimed(job, table_id)
    found = _read(cluster, job, known)
    owner = found.owners.get((str(job.tier), job.topic))
    if known is not None and _is_still_ours(job, table_id, found, known):
        owner = owner_of(job, table_id)
    elif known is not None:
        found = _read(cluster, job, None)
        owner = found.owners.get((str(job.tier), job.topic))
    if owner is None:
        _publish_claim(job, table_id)
        found = _read(cluster, job, None)
        owner = found.owners.get((str(job.tier), job.topic))
    if owner is not None and not is_owned_by(owner, table_id):
        raise OtherTierError(refusal(job, owner))
    _check_no_auditor(job, found)
    epoch = found.epochs.get((str(job.tier), job.topic), "" if known is None else known.epoch)
    place = found.place()
    positions = {where.partition: offset for where, offset in place.positions.items()}
    claim = Claim(epoch, "" if place.topic_id is None else place.topic_id.hex(), positions)
    if claim != known:
        _note_claim(job, table_id, claim)
    return claim


def refusal(job: LoadJob, owner: str) -> str:
    """Why a job cannot count under its tier, and what to do about it."""
    return (
        f"tier {job.tier} counts topic {job.topic} for {owner}: two loads under one tier are a duplication to the audit. "
        "Give this job another --tier; or, if that table no longer exists, take its counts back: "
        f"moldau audit forget --tier {job.tier} --topic {job.topic}"
    )


def _check_no_auditor(job: LoadJob, found: TierCounts) -> None:
    if job.tier in found.auditors:
        raise OtherTierError(f"tier {job.tier} is an auditor's, and counts topic {job.topic}: give this job another --tier")


def claimed(job: LoadJob, table_id: str) -> Claim | None:
    """The claim that is noted beside the table; None if there is none for this job, table and tier."""
    try:
        note = json.loads(place_of(job.table).read(_claim_file(job)))
        if (note["job"], note["topic"], note["tier"], note["table"]) != (job.name, job.topic, job.tier, table_id):
            return None
        return Claim(str(note["epoch"]), str(note["audit"]), {int(number): int(offset) for number, offset in note["positions"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _is_still_ours(job: LoadJob, table_id: str, found: TierCounts, known: Claim) -> bool:
    """Whether nothing that was read since the tier was known to be ours contradicts that. Another one's claim may: it was refused if
    ours is still in the audit topic, and counts if that was recreated or has lost ours by its retention."""
    counted, topic_id = (str(job.tier), job.topic), found.place().topic_id
    same_topic = topic_id is not None and topic_id.hex() == known.audit_id
    return same_topic and counted not in found.epochs and is_owned_by(found.owners.get(counted, table_id), table_id)


def _read(cluster: Cluster, job: LoadJob, known: Claim | None) -> TierCounts:
    """What tiers state about themselves and the topic since `known`, without their counts."""
    into = TierCounts()
    if known is not None and known.audit_id:
        place = into.place()
        place.topic_id = bytes.fromhex(known.audit_id)
        place.positions = {TopicPartition(AUDIT_TOPIC, number): offset for number, offset in known.positions.items()}
    return read_claims(cluster, [job.topic], into)


def _publish_claim(job: LoadJob, table_id: str) -> None:
    publish_claim(job.bootstrap_servers, _client_id(job), str(job.tier), job.topic, owner_of(job, table_id))


def _client_id(job: LoadJob) -> str:
    return f"moldau-load-{job.name}"


def _claim_file(job: LoadJob) -> str:
    name = blake2b(json.dumps([job.name, job.topic]).encode(), digest_size=8).hexdigest()
    return f"{FOLDER}/tier-{name}.json"


def _note_claim(job: LoadJob, table_id: str, claim: Claim) -> None:
    words = {"job": job.name, "topic": job.topic, "tier": job.tier, "table": table_id}
    note = {**words, "epoch": claim.epoch, "audit": claim.audit_id, "positions": claim.positions}
    place_of(job.table).put(_claim_file(job), json.dumps(note).encode())


log = logging.getLogger(__name__)


def keep_counts(job: LoadJob, tables: TableFormat, epoch: str = "") -> None:
    """Before a load makes another version: see to it that no counts are lost with the words of old ones. LoadError if they may be.

    That can only be where a table keeps the words of few versions, and half of them could not be published.
    """
    snapshot = tables.open(job.table)
    if job.tier is None or snapshot is None or tables.words_kept is None:
        return
    if snapshot.version - max(0, _noted(job, snapshot.id, epoch)) < tables.words_kept // 2:
        return
    error = publish_counts(job, tables, epoch)
    if error is not None:
        done = _noted(job, snapshot.id, epoch)
        raise LoadError(
            f"{job.table}: the counts of versions above {done} could not be published to the audit, and the table keeps those of "
            f"{tables.words_kept} versions only: nothing is loaded until it can ({error})"
        )


def publish_counts(job: LoadJob, tables: TableFormat, epoch: str = "", counted_ms: int | None = None) -> str | None:
    """Publish what is not known to be published. Why it could not be done, or None: the rows are there, a load does not fail for it.

    `epoch` is that of the tier's claim. With `counted_ms` a mark states that everything which the topic had by then is counted.
    """
    snapshot = tables.open(job.table)
    if job.tier is None or snapshot is None:
        return None
    done = _noted(job, snapshot.id, epoch)
    if done >= snapshot.version and counted_ms is None:
        return None
    versions = [each for each in tables.commits(job.table, done) if each.version <= snapshot.version]
    records = [record for each in versions for record in records_of(job, snapshot.id, each, epoch)]
    if counted_ms is not None:
        owner = owner_of(job, snapshot.id)
        records.append(AuditRecord.of_tier(job.tier, job.topic, time_ms=now_ms(), owner=owner, counted_ms=counted_ms, epoch=epoch))
    try:
        if records:
            _publish(job, records)
            points.reached("driver: counts published")
        if done < snapshot.version:
            _note(job, snapshot.id, snapshot.version, epoch)
        points.reached("driver: publication noted")
    except (MoldauError, OSError) as error:
        log.warning("%s: the counts of versions above %d were not published: %s", job.table, done, error)
        return str(error)
    return None


def records_of(job: LoadJob, table_id: str, version: TableCommit, epoch: str = "") -> Iterator[AuditRecord]:
    """The audit records of one version of the table, if this job made it; always the same ones."""
    words = version.metadata
    if words.get("moldau.job") != job.name or words.get("moldau.topic") != job.topic or not words.get(COUNTS_KEY):
        return
    assert job.tier is not None
    time_ms = int(words.get("timestamp", 0))
    counted = words[COUNTS_KEY]
    aside = aside_from_json(job.topic, counted)
    untracked = untracked_from_json(job.topic, counted, time_ms)
    dead = {**aside.events, **dict.fromkeys(untracked, aside.untracked)}
    for key, count in {**counts_from_json(job.topic, counted), **untracked}.items():
        guid = count_guid(job.tier, table_id, version.version, key, epoch)
        record = AuditRecord.of_counts(job.tier, key, count, time_ms=time_ms, guid=guid, epoch=epoch)
        yield replace(record, dead_letters=dead[key]) if dead.get(key) else record
    for start_ms, latencies in latencies_from_json(counted, time_ms).items():
        guid = count_guid(job.tier, table_id, version.version, ("latencies", job.topic, start_ms), epoch)
        yield AuditRecord.of_latencies(job.tier, job.topic, start_ms, latencies, time_ms=time_ms, guid=guid, epoch=epoch)


def _publish(job: LoadJob, records: list[AuditRecord]) -> None:
    if not all(record.is_of_tier for record in records):  # otherwise the claim is there
        ensure_audit_topic(job.bootstrap_servers)
    begun = time.monotonic()
    publish(job.bootstrap_servers, _client_id(job), records)
    log.info("%s: %d counts published in %.2f s", job.table, len(records), time.monotonic() - begun)


def _file(job: LoadJob, of: str) -> str:
    name = blake2b(of.encode(), digest_size=8).hexdigest()
    return f"{FOLDER}/published-{name}.json"


def _files(job: LoadJob) -> tuple[str, str]:
    """Where the note is, and where it was before it named the topic: a table may have one that was written then."""
    return _file(job, json.dumps([job.name, job.topic])), _file(job, job.name)


def _noted(job: LoadJob, table_id: str, epoch: str) -> int:
    """Up to which version all counts are published; -1 if that is not known."""
    for path in _files(job):
        try:
            note = json.loads(place_of(job.table).read(path))
            known = (note["table"], note["tier"], note["job"], note.get("topic", job.topic), note.get("epoch", ""))
            if known == (table_id, job.tier, job.name, job.topic, epoch):
                return int(note["version"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return -1


def _note(job: LoadJob, table_id: str, version: int, epoch: str) -> None:
    words = {"table": table_id, "job": job.name, "topic": job.topic, "tier": job.tier, "version": version}
    place_of(job.table).put(_files(job)[0], json.dumps({**words, "epoch": epoch} if epoch else words).encode())
