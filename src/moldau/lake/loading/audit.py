"""After the commit: the counts of a table's versions to the audit, as a tier of the load's own.

The counts are in the table's log, in the version that holds the rows they count, so they are as durable as the rows. Publishing is a
copy that may be made twice: the guid of each audit record is made from the table, the version and what is counted, and the audit takes
each guid once. A note beside the table says up to which version all were taken; a load that finds versions above it publishes them again.
"""

import json
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b

from moldau.lake import points
from moldau.lake.loading.counts import COUNTS_KEY, aside_from_json, counts_from_json, untracked_from_json
from moldau.lake.loading.errors import LoadError
from moldau.lake.loading.job import LoadJob
from moldau.lake.loading.tier_claim import FOLDER, owner_of
from moldau.lake.tables.format import Commit, TableFormat
from moldau.model.errors import MoldauError
from moldau.tracking.audit_record import AUDIT_TOPIC, AuditRecord, ensure_audit_topic
from moldau.tracking.clock import now_ms
from moldau.tracking.counts import CountKey

log = logging.getLogger(__name__)

_DELIVERY_TIMEOUT_MS = 30_000
_TWICE_IS_ONCE = {"enable.idempotence": False}
"""Records have guids of their own, and to get a producer id takes librdkafka half a second."""


def keep_counts(job: LoadJob, tables: TableFormat, epoch: str = "") -> None:
    """Before a load makes another version: see to it that no counts are lost with the words of old ones. LoadError if they may be.

    That can only be where a table keeps the words of few versions, and the audit could not be told of half of them.
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
            f"{job.table}: the audit could not be told the counts of versions above {done}, and the table keeps those of "
            f"{tables.words_kept} versions only: nothing is loaded until it can ({error})"
        )


def publish_counts(job: LoadJob, tables: TableFormat, epoch: str = "", counted_ms: int | None = None) -> str | None:
    """Publish what is not known to be published. Why it could not be done, or None: the rows are there, a load does not fail for it.

    `epoch` is that of the tier's claim. With `counted_ms` a mark says that everything which the topic had by then is counted.
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


def records_of(job: LoadJob, table_id: str, version: Commit, epoch: str = "") -> Iterator[AuditRecord]:
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
        guid = _guid(job.tier, table_id, version.version, key, epoch)
        record = AuditRecord.of_counts(job.tier, key, count, time_ms=time_ms, guid=guid, epoch=epoch)
        yield replace(record, dead_letters=dead.get(key, 0))


def _guid(tier: str, table_id: str, version: int, key: CountKey, epoch: str) -> str:
    """The same for the same count, until the tier's counts are taken back: then they are other ones."""
    return blake2b(json.dumps([tier, table_id, version, *key, *([epoch] if epoch else [])]).encode(), digest_size=16).hexdigest()


def _publish(job: LoadJob, records: list[AuditRecord]) -> None:
    from moldau.client.producer import Producer

    if not all(record.is_of_tier for record in records):  # otherwise the claim is there
        ensure_audit_topic(job.bootstrap)
    begun = time.monotonic()
    name = f"moldau-load-{job.name}"
    settings = {"client_id": name, "delivery_timeout_ms": _DELIVERY_TIMEOUT_MS, "settings": _TWICE_IS_ONCE}
    with Producer(job.bootstrap, linger_ms=0, **settings) as producer:  # type: ignore[arg-type]
        for record in records:
            if record.is_of_tier:
                producer.flush()  # no reader may see the mark before the counts
            producer.send(AUDIT_TOPIC, record.to_bytes(), key=record.record_key)
        producer.flush()
    log.info("%s: %d counts published in %.2f s", job.table, len(records), time.monotonic() - begun)


def _file(job: LoadJob, of: str) -> str:
    name = blake2b(of.encode(), digest_size=8).hexdigest()
    return os.path.join(job.table, FOLDER, f"published-{name}.json")


def _files(job: LoadJob) -> tuple[str, str]:
    """Where the note is, and where it was before it named the topic: a table may have one that was written then."""
    return _file(job, json.dumps([job.name, job.topic])), _file(job, job.name)


def _noted(job: LoadJob, table_id: str, epoch: str) -> int:
    """Up to which version all counts are published; -1 if that is not known."""
    for path in _files(job):
        try:
            with open(path, encoding="utf-8") as file:
                note = json.load(file)
            known = (note["table"], note["tier"], note["job"], note.get("topic", job.topic), note.get("epoch", ""))
            if known == (table_id, job.tier, job.name, job.topic, epoch):
                return int(note["version"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return -1


def _note(job: LoadJob, table_id: str, version: int, epoch: str) -> None:
    path = _files(job)[0]
    os.makedirs(os.path.dirname(path), exist_ok=True)
    new = f"{path}.{os.getpid()}.new"
    with open(new, "w", encoding="utf-8") as file:
        words = {"table": table_id, "job": job.name, "topic": job.topic, "tier": job.tier, "version": version}
        json.dump({**words, "epoch": epoch} if epoch else words, file)
    os.replace(new, path)
