"""What is published about counts: one record per increment, in the topic ``_audit``.

The rule: a tier's totals are the sum of all ``counts`` records with distinct guids, so that publishing a record twice is harmless, and
increments need no order. A producer instance publishes ``open`` before its first event and ``close`` when everything that it sent is
counted and published; one that never closes has incomplete counts. The form is JSON, sorted by name; it is kept for a month: do not change
names, only add.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from json.encoder import encode_basestring
from typing import Any, Final, Literal, Self, get_args

from moldau.model.errors import MoldauError
from moldau.tracking.counts import NOTHING, WINDOW_MS, Count, CountKey
from moldau.tracking.latencies import NO_LATENCIES, Latencies

AUDIT_TOPIC: Final = "_audit"
PRODUCER_TIER: Final = "producer"
AUDIT_PARTITIONS: Final = 6
AUDIT_RETENTION_MS: Final = 30 * 24 * 3_600_000

VERSION: Final = 1

Kind = Literal["counts", "open", "close", "gap"]
_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
GapCause = Literal["gone", "cut"]
_CAUSES: Final[tuple[GapCause, ...]] = get_args(GapCause)
TIER_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
_HEX = re.compile("[0-9a-f]{16}")
_PLAIN: Final = re.compile(
    '{"bytes":N,"checksum":"([0-9a-f]{16})","count":N,"datacenter":T,(?:"epoch":T,)?"guid":T,"host":T,"instance":T,"kind":"counts",'
    '"max_time_ms":N,"min_time_ms":N,"service":T,"tier":T,"time_ms":N,"topic":T,"version":1,"window_end_ms":[0-9]+,'
    '"window_start_ms":N}'.replace("N", "(0|[1-9][0-9]{0,17})").replace("T", r'"([^"\\\x00-\x1f]*)"')
)
"""Nearly all records are increments without anything more, which we write in this form: a quarter of the time that JSON takes."""
_COUNTED: Final = re.compile(rb'"count":[1-9]')


class AuditRecordError(MoldauError):
    """Bytes in the audit topic that are no audit record."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets of a partition, `end_offset` not among them, that an auditor and the log do not agree about.

    ``gone``: they were taken from the log before they were counted. ``cut``: they were counted, and then the log lost its end.
    """

    partition: int
    start_offset: int
    end_offset: int
    cause: GapCause


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One published increment.

    `guid` is the record's own, 32 hex digits; `time_ms` is when it was made. In ``open`` and ``close`` the topic is empty and the window
    is 0 to 0: they are about the whole instance, and the count of a ``close`` is all that the instance has counted, of all topics. In the
    ``open`` of an auditor the instance is the tier and the service the pattern of its topics; or with a topic, the instance is its id.
    A ``gap`` is what an auditor could not count, or has counted before the log lost it.

    Later additions are ``counts`` of no events and no source, which older readers skip: a tier's *claim* of a topic
    (`owner`), its *mark* (`counted_ms`), the taking back of its counts (`forgets`), and how long the events of a window that it counted
    were on their way (`latencies`).
    """

    kind: Kind
    guid: str
    time_ms: int
    tier: str
    key: CountKey
    count: Count = NOTHING
    gap: Gap | None = None
    dead_letters: int = 0
    """How many of the count were put aside as dead letters; they did arrive."""
    owner: str = ""
    """Whose counts of the topic this tier's are, one job's of one table: the first owner that is published is it."""
    counted_ms: int | None = None
    """Everything that the topic had by then is counted by the tier, in ms since 1970."""
    forgets: bool = False
    """All counts that the tier published of the topic before this record are void, and it has no owner."""
    epoch: str | None = None
    """The guid of the record that took the tier's counts back last, as far as the counter knows, empty if none did: what is published under
    another one was in flight when counts were taken back, and is void too. None from those that restart by other means."""
    latencies: Latencies = NO_LATENCIES
    """How long events of the topic and window were on their way to the tier: those that it has counted since the last such record."""
    cluster: str = ""
    """In a mark of an auditor: the id of the cluster that it counts."""

    @property
    def window_end_ms(self) -> int:
        """The end of the window, in ms since 1970; not in it itself."""
        return self.key.window_start_ms + WINDOW_MS if self.key.topic else 0

    @property
    def record_key(self) -> bytes:
        """The key under which it is published: the topic, so that a topic's records share a partition; or else the instance."""
        return (self.key.topic or self.key.instance).encode()

    @classmethod
    def of_counts(cls, tier: str, key: CountKey, count: Count, *, time_ms: int, guid: str | None = None, epoch: str | None = None) -> Self:
        """An increment; `guid` is one that the same increment always gets, None: a new one."""
        return cls("counts", guid or new_guid(), time_ms, tier, key, count, epoch=epoch)

    @classmethod
    def of_tier(
        cls,
        tier: str,
        topic: str,
        *,
        time_ms: int,
        owner: str = "",
        counted_ms: int | None = None,
        forgets: bool = False,
        epoch: str | None = None,
    ) -> Self:
        """A record of a tier about a topic as a whole: a claim, a mark, or that its counts are taken back."""
        key = CountKey(topic, 0, "", "", "", "")
        return cls("counts", new_guid(), time_ms, tier, key, owner=owner, counted_ms=counted_ms, forgets=forgets, epoch=epoch)

    @classmethod
    def of_latencies(
        cls,
        tier: str,
        topic: str,
        window_start_ms: int,
        latencies: Latencies,
        *,
        time_ms: int,
        guid: str | None = None,
        epoch: str | None = None,
    ) -> Self:
        """How long the events of a window were on their way."""
        key = CountKey(topic, window_start_ms, "", "", "", "")
        return cls("counts", guid or new_guid(), time_ms, tier, key, epoch=epoch, latencies=latencies)

    @property
    def is_of_tier(self) -> bool:
        """Whether it counts nothing, and is about the tier and the topic."""
        return (bool(self.owner) or self.counted_ms is not None or self.forgets) and self.kind == "counts" and not self.count

    @property
    def _states_more(self) -> bool:
        stated = self.dead_letters or self.owner or self.counted_ms is not None or self.forgets
        return bool(stated or self.latencies or self.cluster)

    def to_bytes(self) -> bytes:
        """The record's value."""
        key, count = self.key, self.count
        if self.kind == "counts" and count and not self._states_more:
            return self._plain_bytes()
        written: dict[str, Any] = {
            "version": VERSION,
            "kind": self.kind,
            "guid": self.guid,
            "time_ms": self.time_ms,
            "tier": self.tier,
            "topic": key.topic,
            "window_start_ms": key.window_start_ms,
            "window_end_ms": self.window_end_ms,
            "datacenter": key.datacenter,
            "service": key.service,
            "host": key.host,
            "instance": key.instance,
            "count": count.count,
            "bytes": count.bytes,
            "checksum": f"{count.checksum:016x}",
            "min_time_ms": count.min_time_ms,
            "max_time_ms": count.max_time_ms,
        }
        if self.gap is not None:
            written["gap"] = asdict(self.gap)
        more = {"dead_letters": self.dead_letters, "owner": self.owner, "counted_ms": self.counted_ms, "forgets": self.forgets}
        written |= {name: value for name, value in more.items() if value not in (None, 0, "")}
        if self.cluster:
            written["cluster"] = self.cluster
        if self.latencies:
            written["latencies"] = self.latencies.to_text()
        if self.epoch is not None:
            written["epoch"] = self.epoch
        return json.dumps(written, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()

    def _plain_bytes(self) -> bytes:
        """The same of an increment without anything more."""
        key, count, text = self.key, self.count, encode_basestring
        epoch = "" if self.epoch is None else f'"epoch":{text(self.epoch)},'
        first, last = ("null" if time is None else time for time in (count.min_time_ms, count.max_time_ms))
        return (
            f'{{"bytes":{count.bytes},"checksum":"{count.checksum:016x}","count":{count.count},"datacenter":{text(key.datacenter)},'
            f'{epoch}"guid":{text(self.guid)},"host":{text(key.host)},"instance":{text(key.instance)},"kind":"counts",'
            f'"max_time_ms":{last},"min_time_ms":{first},"service":{text(key.service)},"tier":{text(self.tier)},'
            f'"time_ms":{self.time_ms},"topic":{text(key.topic)},"version":{VERSION},"window_end_ms":{self.window_end_ms},'
            f'"window_start_ms":{key.window_start_ms}}}'
        ).encode()

    @classmethod
    def from_bytes(cls, value: bytes | None) -> Self:
        """Out of a record's value. AuditRecordError names the fault; unknown names are skipped."""
        try:
            text = (value or b"").decode()
            if plain := _PLAIN.fullmatch(text):
                octets, checksum, size, where, epoch, guid, host, instance, last, first, service, tier, time, topic, start = plain.groups()
                key = CountKey(topic, int(start), where, service, host, instance)
                count = Count(int(size), int(octets), int(checksum, 16), int(first), int(last))
                return cls("counts", guid, int(time), tier, key, count, epoch=epoch)
            found = json.loads(text)
        except UnicodeDecodeError as error:
            raise AuditRecordError(f"an audit record is JSON in UTF-8; byte {error.start} is not") from None
        except RecursionError:
            raise AuditRecordError("an audit record is JSON that is nested too deeply") from None
        except ValueError as error:
            raise AuditRecordError(f"an audit record is JSON: {error}") from None
        if not isinstance(found, dict):
            raise AuditRecordError(f"an audit record is a JSON object, not {type(found).__name__}")
        if found.get("version") != VERSION:
            raise AuditRecordError(f"an audit record of version {found.get('version')!r}; only version {VERSION} is supported")
        kind = _kind(found)
        key = CountKey(
            _text(found, "topic"),
            _number(found, "window_start_ms"),
            _text(found, "datacenter"),
            _text(found, "service"),
            _text(found, "host"),
            _text(found, "instance"),
        )
        count = Count(
            _size(found, "count"), _size(found, "bytes"), _checksum(found), _time(found, "min_time_ms"), _time(found, "max_time_ms")
        )
        gap = _gap(found) if kind == "gap" else None
        owner = _text(found, "owner") if "owner" in found else ""
        dead_letters = _size(found, "dead_letters") if "dead_letters" in found else 0
        counted_ms, forgets = _time(found, "counted_ms"), found.get("forgets") is True
        epoch = _text(found, "epoch") if "epoch" in found else None
        time_ms, tier, latencies = _number(found, "time_ms"), _text(found, "tier"), _latencies(found)
        cluster = _text(found, "cluster") if "cluster" in found else ""
        stated = (gap, dead_letters, owner, counted_ms, forgets, epoch, latencies, cluster)
        return cls(kind, _text(found, "guid"), time_ms, tier, key, count, *stated)


def new_guid() -> str:
    """A guid for a record that is made once."""
    return os.urandom(16).hex()


def certainly_counts(value: bytes | None) -> bool:
    """Whether the value of a record needs no closer look to know that it is an increment, and states nothing about tier and topic."""
    if value is None or b'"kind":"counts"' not in value:
        return False
    if not _COUNTED.search(value):
        return b'"latencies":"' in value
    return not (b'"owner"' in value or b'"counted_ms"' in value or b'"forgets"' in value)


def ensure_audit_topic(bootstrap: str) -> None:
    """Create the audit topic if it does not exist: 30 days, not compacted. RequestFailedError, ConnectionLostError.

    Its records have the time of the broker: a host whose clock is wrong must not keep them for years, and the audit can detect it.
    """
    from moldau.tracking.topics import TopicDefaults, ensure_topic

    configs = {"cleanup.policy": "delete", "retention.ms": str(AUDIT_RETENTION_MS), "message.timestamp.type": "LogAppendTime"}
    ensure_topic(bootstrap, AUDIT_TOPIC, TopicDefaults(AUDIT_PARTITIONS, configs))


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str):
        raise AuditRecordError(f"{name} is text, not {value!r}")
    return value


def _kind(found: Mapping[str, Any]) -> Kind:
    for kind in _KINDS:
        if found.get("kind") == kind:
            return kind
    raise AuditRecordError(f"kind is one of {', '.join(_KINDS)}, not {found.get('kind')!r}")


def _number(found: Mapping[str, Any], name: str) -> int:
    value = found.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise AuditRecordError(f"{name} is a whole number, not {value!r}")
    return value


def _size(found: Mapping[str, Any], name: str) -> int:
    value = _number(found, name)
    if value < 0:
        raise AuditRecordError(f"{name} is not negative: {value}")
    return value


def _time(found: Mapping[str, Any], name: str) -> int | None:
    return None if found.get(name) is None else _number(found, name)


def _gap(found: Mapping[str, Any]) -> Gap:
    gap = found.get("gap")
    if not isinstance(gap, Mapping):
        raise AuditRecordError(f"gap is an object, not {gap!r}")
    for cause in _CAUSES:
        if gap.get("cause") == cause:
            return Gap(_size(gap, "partition"), _size(gap, "start_offset"), _size(gap, "end_offset"), cause)
    raise AuditRecordError(f"the cause of a gap is one of {', '.join(_CAUSES)}, not {gap.get('cause')!r}")


def _latencies(found: Mapping[str, Any]) -> Latencies:
    if "latencies" not in found:
        return NO_LATENCIES
    try:
        return Latencies.from_text(_text(found, "latencies"))
    except ValueError as error:
        raise AuditRecordError(str(error)) from None


def _checksum(found: Mapping[str, Any]) -> int:
    text = _text(found, "checksum")
    if not _HEX.fullmatch(text):
        raise AuditRecordError(f"checksum is 16 hex digits, not {text!r}")
    return int(text, 16)
