"""Is it all there? A sum that does not depend on order: of a 64-bit hash of each event, modulo 2^64.

An event is the number of its line in the input and its payload. Its payload is the canonical JSON of its fields, so that the same number
comes out of the input file, of the bytes in the log, and of the typed columns of a table: whoever computes it from a table shows that
no field was changed on the way. Equal counts and equal sums: nothing missing, nothing doubled, nothing changed.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

MODULUS = 1 << 64
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_EXACT_MAX = 1 << 53
"""Up to here a float that is a whole number is that number."""


def event_hash(line: int, payload: bytes) -> int:
    """Hash of one event, from 0 to 2^64 - 1."""
    return int.from_bytes(blake2b(line.to_bytes(8, "big") + payload, digest_size=8).digest(), "big")


def canonical(event: Mapping[str, Any]) -> bytes:
    """An event as JSON that depends on its content only: sorted names, no spaces, nothing empty, whole numbers without a point."""
    return encode_plain(plain(event))


def encode_plain(event: Mapping[str, Any]) -> bytes:
    """`canonical` of an event that is `plain` already."""
    return _encode(event).encode()


def plain(value: Any) -> Any:
    """A JSON value without the differences that a typed column does not keep: nulls and empty objects in objects, ``1.0`` for ``1``."""
    kind = type(value)
    if kind is str or kind is int or kind is bool:
        return value
    if kind is float:
        return int(value) if value.is_integer() and abs(value) <= _EXACT_MAX else value
    if kind is list:
        return [plain(item) for item in value]
    if kind is dict:
        fields = {name: plain(item) for name, item in value.items() if item is not None}
        return {name: item for name, item in fields.items() if item != {}}
    return value


@dataclass(frozen=True, slots=True)
class Tally:
    """How many events, how many different lines, and the sum of their hashes."""

    events: int
    lines: int
    checksum: int

    @property
    def doubled(self) -> int:
        """Events beyond the first of each line."""
        return self.events - self.lines

    def __add__(self, other: "Tally") -> "Tally":
        """Two stores together that hold different lines."""
        return Tally(self.events + other.events, self.lines + other.lines, (self.checksum + other.checksum) % MODULUS)

    def missing_from(self, expected: "Tally") -> int:
        """Lines of `expected` that are not here."""
        return expected.lines - self.lines


def tally_of_log(spark: Any, bootstrap: str, topic: str) -> Tally:
    """All records of a topic, read through our data source; the line is the header ``line``."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
    schema = "value binary, headers array<struct<key:string,value:binary>>"
    return _tally(spark.read.format("moldau").schema(schema).options(**options).load(), _hashes_of_records)


def tally_of_table(events: Any) -> Tally:
    """All rows of a table of events, which has the line in the column ``_line``: each event is put together again from its columns."""
    from moldau.lake.data_files import DAY, HOUR

    fields = [name for name in events.columns if not name.startswith("_") and name not in (DAY, HOUR)]
    return _tally(events.select("_line", *fields), _hashes_of_rows)


def tally_of_dead_letters(spark: Any, letters: Any, bootstrap: str, topic: str) -> Tally:
    """All rows of a dead-letter table; their lines come from the log, by partition and offset."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
    schema = "partition int, offset bigint, headers array<struct<key:string,value:binary>>"
    records = spark.read.format("moldau").schema(schema).options(**options).load()
    there = letters.selectExpr("value", "_partition AS partition", "_offset AS offset").join(records, ["partition", "offset"])
    return _tally(there.select("value", "headers"), _hashes_of_records)


def _tally(rows: Any, hashes: Any) -> Tally:
    sums = rows.mapInArrow(hashes, "line bigint, hash bigint").selectExpr(
        "count(*)", "count(DISTINCT line)", "cast(coalesce(sum(cast(hash AS decimal(38, 0))), 0) AS string)"
    )
    count, lines, total = sums.first()
    return Tally(count, lines, int(total) % MODULUS)


def line_of(headers: Any) -> int | None:
    """The number in the header ``line``; None if there is none."""
    for header in reversed(headers or []):
        if header["key"] == "line" and header["value"].isdigit():
            return int(header["value"])
    return None


def _hashes_of_records(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        lines = [line_of(headers) for headers in batch.column("headers").to_pylist()]
        yield _hashed(lines, batch.column("value").to_pylist())


def _hashes_of_rows(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        lines, *columns = (column.to_pylist() for column in batch.columns)
        names = batch.schema.names[1:]
        rows = (dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True))
        yield _hashed(lines, map(canonical, rows))


def _hashed(lines: list[int | None], payloads: Any) -> Any:
    import pyarrow as pa

    hashes = [event_hash(line or 0, payload or b"") for line, payload in zip(lines, payloads, strict=True)]
    signed = [number - MODULUS if number >= MODULUS // 2 else number for number in hashes]
    return pa.record_batch({"line": pa.array(lines, pa.int64()), "hash": pa.array(signed, pa.int64())})
