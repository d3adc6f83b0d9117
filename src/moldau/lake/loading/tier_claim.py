"""Whose counts of a topic a tier's are: those of one job into one table.

Two loads of one topic that count under one tier name would be a duplication to the audit. So a load says in the audit topic that the tier
is its own before it counts anything (a *claim*), and reads back who was first. All records of a topic share a partition, so there is one
order of claims and of what takes counts back (``moldau audit forget``). A note beside the table says up to where the audit topic was read,
and under which *epoch* the counts are: the guid of what took counts back last, which goes into the guids of those published after it.
"""

import json
import os
from dataclasses import dataclass
from hashlib import blake2b

from moldau.audit.follow import read_audit
from moldau.audit.tiers import TierCounts
from moldau.client.cluster import Cluster
from moldau.lake.loading.errors import LoadError
from moldau.lake.loading.job import LoadJob
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
    """The owner of counts, as it is published. Who it is the last word says; the others are for people."""
    return f"job {job.name}, table {os.path.abspath(job.table)}, id {table_id}"


def check_unclaimed(job: LoadJob) -> None:
    """Check that no other job counts the topic under the job's tier; for a job whose table does not exist yet, so that no claim is its own.
    OtherTierError; WorldError, PeerError."""
    with Cluster(job.bootstrap, client_id=f"moldau-load-{job.name}") as cluster:
        found = _read(cluster, job, None)
    owner = found.owners.get((str(job.tier), job.topic))
    if owner is not None:
        raise OtherTierError(refusal(job, owner))
    _check_no_auditor(job, found)


def own_tier(job: LoadJob, table_id: str) -> Claim:
    """Claim the job's tier for the topic, unless it is claimed. OtherTierError; WorldError, PeerError."""
    known = claimed(job, table_id)
    with Cluster(job.bootstrap, client_id=f"moldau-load-{job.name}") as cluster:
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
    if owner is not None and not _is_ours(owner, table_id):
        raise OtherTierError(refusal(job, owner))
    _check_no_auditor(job, found)
    epoch = found.epochs.get((str(job.tier), job.topic), "" if known is None else known.epoch)
    positions = {where.partition: offset for where, offset in found.positions.items()}
    claim = Claim(epoch, "" if found.topic_id is None else found.topic_id.hex(), positions)
    if claim != known:
        _note(job, table_id, claim)
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
        with open(_file(job), encoding="utf-8") as file:
            note = json.load(file)
        if (note["job"], note["topic"], note["tier"], note["table"]) != (job.name, job.topic, job.tier, table_id):
            return None
        return Claim(str(note["epoch"]), str(note["audit"]), {int(number): int(offset) for number, offset in note["positions"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _is_ours(owner: str, table_id: str) -> bool:
    return owner.rpartition(" ")[2] == table_id


def _is_still_ours(job: LoadJob, table_id: str, found: TierCounts, known: Claim) -> bool:
    """Whether nothing that was read since the tier was known to be ours contradicts that. Another one's claim may: it was refused if
    ours is still in the audit topic, and counts if that was recreated or has lost ours by its retention."""
    place = (str(job.tier), job.topic)
    same_topic = found.topic_id is not None and found.topic_id.hex() == known.audit_id
    return same_topic and place not in found.epochs and _is_ours(found.owners.get(place, table_id), table_id)


def _read(cluster: Cluster, job: LoadJob, known: Claim | None) -> TierCounts:
    into = TierCounts()
    if known is not None and known.audit_id:
        into.topic_id = bytes.fromhex(known.audit_id)
        into.positions = {TopicPartition(AUDIT_TOPIC, number): offset for number, offset in known.positions.items()}
    topic = job.topic.encode()
    return read_audit(cluster, into, wanted=lambda key: key == topic)


def _publish_claim(job: LoadJob, table_id: str) -> None:
    from moldau.client.producer import Producer

    ensure_audit_topic(job.bootstrap)
    record = AuditRecord.of_tier(str(job.tier), job.topic, time_ms=now_ms(), owner=owner_of(job, table_id))
    with Producer(job.bootstrap, client_id=f"moldau-load-{job.name}", settings={"enable.idempotence": False}) as producer:
        producer.send(AUDIT_TOPIC, record.to_bytes(), key=record.record_key).result()


def _file(job: LoadJob) -> str:
    name = blake2b(json.dumps([job.name, job.topic]).encode(), digest_size=8).hexdigest()
    return os.path.join(job.table, FOLDER, f"tier-{name}.json")


def _note(job: LoadJob, table_id: str, claim: Claim) -> None:
    path = _file(job)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = f"{path}.{os.getpid()}.new"
    with open(new, "w", encoding="utf-8") as file:
        words = {"job": job.name, "topic": job.topic, "tier": job.tier, "table": table_id}
        json.dump({**words, "epoch": claim.epoch, "audit": claim.audit_id, "positions": claim.positions}, file)
    os.replace(new, path)
