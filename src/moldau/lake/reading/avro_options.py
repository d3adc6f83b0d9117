"""The options of ``format=avro``: values are decoded through a schema registry into typed columns."""

from collections.abc import Mapping
from dataclasses import dataclass

from moldau.lake.reading.offsets import OptionError
from moldau.lake.reading.option_values import choice, one_of

_FORMAT, _REGISTRY, _SUBJECT, _SCHEMA, _MODE = "format", "registry", "subject", "readerSchema", "mode"
_DEAD_LETTERS, _KAFKA_COLUMNS = "deadLetterPath", "kafkaColumns"
AVRO_NAMES = (_FORMAT, _REGISTRY, _SUBJECT, _SCHEMA, _MODE, _DEAD_LETTERS, _KAFKA_COLUMNS)
FAILFAST, PERMISSIVE, DEAD_LETTERS = "FAILFAST", "PERMISSIVE", "dead letters"
"""What becomes of a value that cannot be decoded: it fails the read; it is a row of nulls with its error; it is put aside."""
RECORD_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "headers")
"""What can stand beside the fields of an event, each with a ``_`` before its name."""
_USUAL = ("topic", "partition", "offset", "timestamp", "key")


@dataclass(frozen=True, slots=True)
class AvroOptions:
    """How values are decoded."""

    registry: str
    subject: str | None
    """The subject whose latest schema is the reader's; None where `reader_schema` is given."""
    reader_schema: str | None
    mode: str
    dead_letter_path: str | None
    record_columns: tuple[str, ...]
    """Those of RECORD_COLUMNS that are made."""


def parse_avro(options: Mapping[str, str], only_topic: str | None) -> AvroOptions | None:
    """The options that say how to decode; None for ``format=bytes``. OptionError."""
    if choice(options, _FORMAT, ("bytes", "avro"), "bytes") == "bytes":
        for name in AVRO_NAMES[1:]:
            if name in options:
                raise OptionError(name, "has no meaning without format=avro")
        return None
    if not options.get(_REGISTRY, "").strip():
        raise OptionError(_REGISTRY, "is needed for format=avro: the URL of a schema registry")
    _check_url(options[_REGISTRY])
    given = one_of(options, (_SUBJECT, _SCHEMA))
    if given is None and only_topic is None:
        raise OptionError(_SUBJECT, "or readerSchema is needed: more than one topic may be read")
    mode = choice(options, _MODE, (FAILFAST, PERMISSIVE), FAILFAST)
    path = options.get(_DEAD_LETTERS, "").strip() or None
    if _DEAD_LETTERS in options:
        if path is None:
            raise OptionError(_DEAD_LETTERS, "is empty")
        if _MODE in options:
            raise OptionError(_DEAD_LETTERS, f"cannot be given together with {_MODE}: dead letters are put aside in no other mode")
        mode = DEAD_LETTERS
    return AvroOptions(
        registry=options[_REGISTRY].strip(),
        subject=None if given == _SCHEMA else options.get(_SUBJECT, f"{only_topic}-value"),
        reader_schema=options.get(_SCHEMA),
        mode=mode,
        dead_letter_path=path,
        record_columns=_record_columns(options.get(_KAFKA_COLUMNS, "false")),
    )


def _check_url(text: str) -> None:
    from moldau.registry.client import RegistryClient

    try:
        RegistryClient(text.strip())
    except ValueError as error:
        raise OptionError(_REGISTRY, str(error)) from None


def _record_columns(text: str) -> tuple[str, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if words in (["true"], ["false"]):
        return _USUAL if words == ["true"] else ()
    known = {name.lower(): name for name in RECORD_COLUMNS}
    for word in words:
        if word.lstrip("_").lower() not in known:
            raise OptionError(_KAFKA_COLUMNS, f"is true, false or some of {', '.join(RECORD_COLUMNS)}; there is no {word!r}")
    chosen = {known[word.lstrip("_").lower()] for word in words}
    return tuple(name for name in RECORD_COLUMNS if name in chosen)
