"""The guid of a schema: an MD5 over everything that makes it what it is, shown as a UUID. Confluent's registry computes the same.

    text, then of each reference name, subject, version (int32)
    01, then the metadata: tags with their values, properties with theirs, names that are sensitive, each sorted
    01, then the rules one after the other: migration, domain, encoding; enableAt

Metadata and rules that are not there add nothing. Two schemas with one fingerprint are one schema, and have one id in a context.
"""

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moldau.registry.subjects import Reference

RULES = ("migrationRules", "domainRules", "encodingRules")


def fingerprint(
    text: str, references: Sequence[Reference] = (), metadata: Mapping[str, Any] | None = None, rule_set: Mapping[str, Any] | None = None
) -> bytes:
    """16 bytes."""
    digest = hashlib.md5(text.encode(), usedforsecurity=False)
    for reference in references:
        digest.update(reference.name.encode() + reference.subject.encode() + reference.version.to_bytes(4, "big", signed=True))
    if metadata is not None:
        digest.update(b"\1" + b"".join(_of_metadata(metadata)))
    if rule_set is not None:
        digest.update(b"\1" + b"".join(_of_rule_set(rule_set)))
    return digest.digest()


def guid(found: bytes) -> str:
    """A fingerprint as it is shown."""
    return str(uuid.UUID(bytes=found))


def parse_guid(text: str) -> bytes | None:
    """The fingerprint that is shown as this, with dashes or without; None for a text that is none."""
    try:
        return uuid.UUID(text).bytes
    except ValueError:
        return None


def _of_metadata(metadata: Mapping[str, Any]) -> Iterable[bytes]:
    for name, values in sorted((metadata.get("tags") or {}).items()):
        yield name.encode()
        yield from (value.encode() for value in sorted(set(values)))
    for name, value in sorted((metadata.get("properties") or {}).items()):
        yield name.encode() + value.encode()
    yield from (name.encode() for name in sorted(set(metadata.get("sensitive") or ())))


def _of_rule_set(rule_set: Mapping[str, Any]) -> Iterable[bytes]:
    for kind in RULES:
        for rule in rule_set.get(kind) or ():
            yield from _of_rule(rule)
    yield str(rule_set.get("enableAt") or "").encode()


def _of_rule(rule: Mapping[str, Any]) -> Iterable[bytes]:
    for name in ("name", "doc", "kind", "mode", "type"):
        yield str(rule.get(name) or "").encode()
    yield from (tag.encode() for tag in sorted(set(rule.get("tags") or ())))
    for name, value in sorted((rule.get("params") or {}).items()):
        yield name.encode() + value.encode()
    for name in ("expr", "onSuccess", "onFailure"):
        yield str(rule.get(name) or "").encode()
    if rule.get("disabled"):
        yield b"\1"
