"""Answers as JSON, with Confluent's names in Confluent's order; what is empty is left out."""

from collections.abc import Mapping
from typing import Any

from moldau.registry.records import SchemaVersion, guid


def version_view(schema: SchemaVersion, text: str | None = None) -> dict[str, Any]:
    """A version of a subject; `text` replaces the stored one where another format was asked for."""
    return {
        "subject": schema.subject,
        "version": schema.version,
        "id": schema.id,
        **_content(schema, text),
        **_when(schema),
        **({"deleted": True} if schema.deleted else {}),
    }


def registered_view(schema: SchemaVersion, sent: str) -> dict[str, Any]:
    """What a registration comes to.

    A Protobuf schema that was `sent` as a descriptor is stored as text. That text is left out here: Confluent's client keeps the schema of
    the answer if there is one, and takes it for a descriptor later.
    """
    found = {"id": schema.id, "version": schema.version, **_content(schema, None), **_when(schema)}
    if schema.type == "PROTOBUF" and sent != schema.text:
        del found["schema"]
    return found


def schema_view(schema: SchemaVersion, text: str | None = None, *, named: bool = False, id_max: int | None = None) -> dict[str, Any]:
    """The schema of an id; `named` adds the subject and the version where it was looked up."""
    where = {"subject": schema.subject, "version": schema.version} if named else {}
    highest = {} if id_max is None else {"maxId": id_max}
    return {**where, **_content(schema, text), **highest, **_when(schema)}


def config_view(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration, as GET gives it."""
    return dict(config)


def config_update_view(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration, as PUT gives it back: there the level has another name."""
    return {"compatibility" if name == "compatibilityLevel" else name: value for name, value in config.items()}


def _content(schema: SchemaVersion, text: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {"guid": guid(schema.fingerprint), "schemaType": schema.type}
    if schema.references:
        found["references"] = [each._asdict() for each in schema.references]
    if schema.metadata is not None:
        found["metadata"] = schema.metadata
    if schema.rule_set is not None:
        found["ruleSet"] = schema.rule_set
    found["schema"] = schema.text if text is None else text
    return found


def _when(schema: SchemaVersion) -> dict[str, Any]:
    return {} if schema.timestamp_ms is None else {"ts": schema.timestamp_ms}
