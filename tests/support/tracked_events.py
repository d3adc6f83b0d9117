"""What tests of tracked events share: a registry in memory, whole topics read back, an event of ten fields."""

from collections.abc import Iterable
from itertools import count
from typing import Any

from moldau.client.consumer import Consumer
from moldau.client.message import ConsumedMessage
from moldau.model.identity import TopicPartition
from moldau.registry.client import RegisteredSchema, SubjectVersion
from moldau.registry.client_errors import RegistryError, UnknownSchemaError
from moldau.tracking.audit_record import AUDIT_TOPIC, AuditRecord
from moldau.tracking.counts import Count, CountKey

LIMIT_S = 60.0

TEN_FIELDS: dict[str, Any] = {
    "type": "record",
    "name": "PageView",
    "namespace": "shop",
    "fields": [
        {"name": "member", "type": "long"},
        {"name": "page", "type": "string"},
        {"name": "referrer", "type": ["null", "string"], "default": None},
        {"name": "duration_ms", "type": "int"},
        {"name": "scrolled", "type": "double"},
        {"name": "signed_in", "type": "boolean"},
        {"name": "device", "type": {"type": "enum", "name": "Device", "symbols": ["DESKTOP", "PHONE", "TABLET"]}},
        {"name": "country", "type": "string"},
        {"name": "agent", "type": "string"},
        {"name": "bytes", "type": "long"},
    ],
}


def page_view(number: int = 0) -> dict[str, Any]:
    """An event of ten fields."""
    return {
        "member": 100_000 + number,
        "page": f"/product/{number % 1000}",
        "referrer": None if number % 3 else "https://example.org/search",
        "duration_ms": number % 60_000,
        "scrolled": 0.25,
        "signed_in": number % 2 == 0,
        "device": "PHONE",
        "country": "CZ",
        "agent": "Mozilla/5.0 (X11; Linux x86_64)",
        "bytes": 52_345,
    }


class MemoryRegistry:
    """A registry as producers and consumers of tracked events see it; every schema is compatible. `asked` counts its calls."""

    def __init__(self) -> None:
        self._schemas: dict[int, RegisteredSchema] = {}
        self._subjects: dict[str, list[int]] = {}
        self._ids = count(1)
        self.asked: list[str] = []

    def register(self, subject: str, text: str) -> int:
        self.asked.append(f"register {subject}")
        schema_id = next((known.id for known in self._schemas.values() if known.text == text), None)
        if schema_id is None:
            schema_id = next(self._ids)
            self._schemas[schema_id] = RegisteredSchema(schema_id, "AVRO", text)
        versions = self._subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def lookup(self, subject: str, text: str) -> SubjectVersion:
        self.asked.append(f"lookup {subject}")
        for version, schema_id in enumerate(self._subjects.get(subject, []), 1):
            if self._schemas[schema_id].text == text:
                return SubjectVersion(subject, version, schema_id, "AVRO", text)
        raise RegistryError(404, 40403, f"subject {subject}: schema not found")

    def schema(self, schema_id: int) -> RegisteredSchema:
        self.asked.append(f"schema {schema_id}")
        if schema_id not in self._schemas:
            raise UnknownSchemaError(schema_id, "schema not found")
        return self._schemas[schema_id]

    def referenced(self, schema: RegisteredSchema) -> Iterable[SubjectVersion]:
        return ()


def whole_topic(bootstrap: str, topic: str) -> list[ConsumedMessage]:
    """All messages that a topic has now, by partition and offset."""
    with Consumer(bootstrap, settings={"fetch.wait.max.ms": 20}) as consumer:
        partitions = [TopicPartition(topic, number) for number in range(consumer.partitions_for(topic))]
        ends = consumer.end_offsets(partitions)
        left = {where for where in partitions if ends[where] > consumer.beginning_offsets([where])[where]}
        consumer.assign(dict.fromkeys(left, 0))
        found: list[ConsumedMessage] = []
        while left:
            message = consumer.poll(LIMIT_S)
            assert message is not None, f"{topic}: no message within {LIMIT_S} s"
            found.append(message)
            left = {where for where in left if consumer.positions().get(where, 0) < ends[where]}
    return sorted(found, key=lambda each: (each.partition, each.offset))


def audit_records(bootstrap: str) -> list[AuditRecord]:
    """All records of the audit topic."""
    return [AuditRecord.from_bytes(message.value) for message in whole_topic(bootstrap, AUDIT_TOPIC)]


def totals(records: Iterable[AuditRecord]) -> dict[CountKey, Count]:
    """What is counted by these: the sum of the counts records with distinct guids."""
    distinct = {record.guid: record for record in records if record.kind == "counts"}
    found: dict[CountKey, Count] = {}
    for record in distinct.values():
        found[record.key] = found.get(record.key, Count()) + record.count
    return found
