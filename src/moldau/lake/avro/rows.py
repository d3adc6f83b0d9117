"""Avro bodies row by row through fastavro: every shape there is, and the judge of what the fast decoder doubts.

What is stricter than fastavro: bytes left over behind an event are an error (they are what a wrong schema id looks like), and so are
numbers that do not fit their type, numbers below 0 of symbols and branches, and dates and times outside of the years 1 to 9999.
"""

from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import Any

import pyarrow as pa

from moldau.lake.avro.conversions import YearError, conversion, has_named_choice
from moldau.lake.avro.evolution import fastavro_pair
from moldau.lake.avro.schemas import AvroSchema
from moldau.lake.avro.sizes import check_sizes
from moldau.lake.avro.types import arrow_schema
from moldau.registry.untrusted_avro import NegativeNumberError, checked_numbers


class RowDecoder:
    """Decodes bodies that were written with one schema into the columns of another."""

    def __init__(self, writer: AvroSchema, reader: AvroSchema) -> None:
        from fastavro import schemaless_reader

        check_sizes(writer.record)
        self._read = schemaless_reader
        self.schema = arrow_schema(reader.record)
        self._named = has_named_choice(writer.record) or has_named_choice(reader.record)
        given, self._reader = fastavro_pair(writer, reader)
        self._writer = checked_numbers(given)
        self._converts = [(each.name, conversion(each.type, named=self._named)) for each in reader.record.fields]

    def decode(self, bodies: Iterable[Any]) -> tuple[Any, list[int], dict[int, str]]:
        """A record batch of the bodies that could be decoded, their numbers, and the reasons why the others could not."""
        rows: list[list[Any]] = []
        accepted: list[int] = []
        rejected: dict[int, str] = {}
        for number, body in enumerate(bodies):
            try:
                rows.append(self._row(body))
                accepted.append(number)
            except Exception as error:  # hostile bytes make fastavro raise whatever it likes
                rejected[number] = _reason(error)
        try:
            return self._batch(rows), accepted, rejected
        except (pa.ArrowException, OverflowError, ValueError, TypeError):
            return self._one_by_one(rows, accepted, rejected)

    def _row(self, body: Any) -> list[Any]:
        stream = BytesIO(body)
        try:
            event: Any = self._read(stream, self._writer, self._reader, return_named_type=self._named)
        except NegativeNumberError:
            raise
        except IndexError:
            raise (EOFError if stream.tell() == len(body) else IndexError) from None  # a number that is cut off is an IndexError, too
        if stream.tell() != len(body):
            raise ValueError(f"{len(body) - stream.tell()} of {len(body)} bytes are left over behind the event")
        return [event[name] if convert is None else convert(event[name]) for name, convert in self._converts]

    def _batch(self, rows: Sequence[Sequence[Any]]) -> Any:
        columns = zip(*rows, strict=True) if rows else [()] * len(self.schema)
        arrays = [pa.array(list(column), kind) for column, kind in zip(columns, self.schema.types, strict=True)]
        if not arrays:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
        return pa.record_batch(arrays, schema=self.schema)

    def _one_by_one(
        self, rows: Sequence[Sequence[Any]], accepted: Sequence[int], rejected: dict[int, str]
    ) -> tuple[Any, list[int], dict[int, str]]:
        """A number is too large for its column: find out whose."""
        good: list[Sequence[Any]] = []
        numbers: list[int] = []
        for number, row in zip(accepted, rows, strict=True):
            try:
                self._batch([row])
            except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
                rejected[number] = _reason(error)
            else:
                good.append(row)
                numbers.append(number)
        return self._batch(good), numbers, rejected


def _reason(error: Exception) -> str:
    match error:
        case EOFError():
            return "the value ends in the middle of the event"
        case IndexError():
            return "an enum or a union has a number that its schema does not have"
        case UnicodeDecodeError():
            return f"a string is not UTF-8: {error.reason} at its byte {error.start}"
        case YearError():
            return str(error)
        case OverflowError():
            return "a number is too large for its type"
    text = str(error).split(", '__fastavro")[0]
    return text if len(text) <= 300 else f"{text[:300]}..."
