"""The footers of data files beside what the table's log says: whether they can be read, their rows and their columns.

A footer costs a look at the disk, so of many files some are read, spread evenly over the table. A column that a file lacks, or has with a
narrower number, is no finding: readers fill it, and widen it.
"""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from moldau.lake.doctor.facts import FooterFacts
from moldau.lake.tables.data_files import DataFile
from moldau.lake.tables.format import TableMismatchError
from moldau.lake.tables.places.addresses import place_of
from moldau.lake.tables.schemas import evolve, storable_schema

_THREADS = 4
_NAMED_MAX = 100
"""Of damaged or unfit files so many are named."""


@dataclass(frozen=True, slots=True)
class _Footer:
    damage: str | None = None
    rows: int = 0
    schema: Any = None


def sampled(files: Sequence[DataFile], count: int) -> list[DataFile]:
    """At most `count` of the files, spread evenly, the first and the last among them."""
    if count <= 0 or not files:
        return []
    if len(files) <= count:
        return list(files)
    step = (len(files) - 1) / max(count - 1, 1)
    return [files[round(number * step)] for number in range(count)]


def read_footers(path: str, files: Sequence[DataFile], schema: Any) -> FooterFacts:
    """What the footers of these files say. Files that are missing are left out."""
    damaged: dict[str, str] = {}
    row_counts: dict[str, tuple[int, int]] = {}
    unfit: dict[str, str] = {}
    beyond: Counter[str] = Counter()
    read = 0
    seen: dict[Any, tuple[tuple[str, ...], str | None]] = {}
    with ThreadPoolExecutor(_THREADS) as pool:
        for file, footer in zip(files, pool.map(lambda each: _footer(path, each.path), files), strict=True):
            if footer is None:
                continue
            read += 1
            if footer.damage is not None:
                _note(damaged, file.path, footer.damage)
                continue
            if file.rows and footer.rows != file.rows:
                _note(row_counts, file.path, (footer.rows, file.rows))
            key = str(footer.schema)
            if key not in seen:
                seen[key] = _compared(schema, footer.schema)
            added, reason = seen[key]
            beyond.update(added)
            if reason is not None:
                _note(unfit, file.path, reason)
    return FooterFacts(read, damaged, row_counts, unfit, dict(beyond))


def _note(found: dict[str, Any], path: str, value: Any) -> None:
    if len(found) < _NAMED_MAX:
        found[path] = value


def _footer(path: str, name: str) -> _Footer | None:
    try:
        metadata = pq.read_metadata(place_of(path).source(name))
        return _Footer(rows=metadata.num_rows, schema=metadata.schema.to_arrow_schema())
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException) as error:
        return _Footer(str(error).splitlines()[0])


def _compared(table: Any, file: Any) -> tuple[tuple[str, ...], str | None]:
    """The columns that only the file has, and why a column cannot be read as the table has it."""
    try:
        found = evolve("", table, storable_schema(file))
    except TableMismatchError as error:
        return (), str(error).removeprefix(": ").replace("in the events", "in the file").partition(": the one")[0]
    except ValueError as error:
        return (), str(error)
    if found.widened:
        name = found.widened[0]
        return found.added, f"column {name} is wider in the file than in the table"
    return found.added, None
