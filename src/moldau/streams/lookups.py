"""Rows of a stream with what a secondary store has of their keys: the common part of tables and compacted topics.

A lookup is a step of the tasks: each Python process of Spark holds the store in the version of the batch, and brings it to the next one
when that differs. Spark's own join of a stream with a DataFrame that is none would read the store again for each batch, and not say in
which version. The watermark passes through.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from moldau.lake.python_tasks import begun_early
from moldau.streams.versions import Note, TaskBatch, current_batch, noted

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

HOWS: Final = ("left_outer", "inner")
_LOADED_MAX = 8


class StoreVersion:
    """A store in one version, in the memory of a process."""

    note: Note
    label: Any
    """What the rows get as the version."""

    def columns(self, keys: Sequence[Any]) -> tuple[list[Any], Any]:
        """For the rows with these key columns the columns of the store, and an array that is null where the store has no such key."""
        raise NotImplementedError


class Store:
    """What a task knows of a secondary store. Goes to tasks by pickle."""

    name: str
    """Of its notes."""
    directory: str
    """Of the job."""

    def newest(self) -> Note:
        """The version there is now."""
        raise NotImplementedError

    def fixed(self) -> Note | None:
        """The version that all batches read, if one was named."""
        return None

    def load(self, note: Note, before: StoreVersion | None) -> StoreVersion:
        """This version, from one that the process has, if that helps."""
        raise NotImplementedError


_loaded: dict[tuple[str, str, str | None], StoreVersion] = {}
"""By job, store and query: the newest version that this process was asked for."""


def version_now(store: Store) -> StoreVersion:
    """The version that the task's batch reads."""
    batch = current_batch()
    note = store.fixed() or _note(store, batch)
    place = (store.directory, store.name, None if batch is None else batch.run)
    known = _loaded.get(place)
    if known is None or known.note != note:
        if known is None and len(_loaded) >= _LOADED_MAX:
            _loaded.pop(next(iter(_loaded)))
        known = _loaded[place] = store.load(note, known)
    return known


def _note(store: Store, batch: TaskBatch | None) -> Note:
    return store.newest() if batch is None else noted(store.directory, store.name, batch, store.newest)


def looked_up(
    batches: Iterator[Any], *, store: Store, keys: Sequence[str], schema: Any, dropped: Sequence[str], inner: bool
) -> Iterator[Any]:
    """What Spark calls in a task: the rows without the columns `dropped`, with those of the store and the version, as `schema` has them."""
    version: StoreVersion | None = None
    for batch in batches:
        if version is None:  # a task without rows needs no version
            version = version_now(store)
        found, present = version.columns([batch.column(key) for key in keys])
        kept = [column for name, column in zip(batch.schema.names, batch.columns, strict=True) if name not in dropped]
        label = pa.repeat(pa.scalar(version.label, schema.types[-1]), batch.num_rows)
        whole = pa.record_batch([*kept, *found, label], names=schema.names)
        yield whole.filter(present.is_valid()) if inner else whole


def with_lookup(rows: Any, store: Store, keys: Sequence[str], added: "StructType", *, dropped: Sequence[str], how: str) -> Any:
    """The DataFrame with the columns `added`, the version last."""
    from functools import partial

    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    schema = StructType([*(field for field in rows.schema.fields if field.name not in dropped), *added.fields])
    step: Callable[[Iterator[Any]], Iterator[Any]] = partial(
        looked_up,
        store=store,
        keys=tuple(keys),
        schema=to_arrow_schema(schema, timezone="UTC"),
        dropped=tuple(dropped),
        inner=how == "inner",
    )
    return rows.mapInArrow(begun_early(step), schema)


def added_names(rows: Any, theirs: Sequence[str], keys: Sequence[str], version: str, how: str) -> Mapping[str, str]:
    """The names that the store's columns get beside those of the rows: `right_` before one that both have. ValueError."""
    if how not in HOWS:
        raise ValueError(f"rows are looked up left_outer or inner, not {how!r}")
    for key in keys:
        if key not in rows.columns:
            raise ValueError(f"the rows have no column {key}; they have {', '.join(rows.columns)}")
    ours = {name.lower() for name in rows.columns}
    found = {name: f"right_{name}" if name.lower() in ours else name for name in theirs}
    if version.lower() in ours | {name.lower() for name in found.values()}:
        raise ValueError(f"there is a column {version} already: give the version another name with version_column=")
    if twice := sorted(name for name in found.values() if name.startswith("right_") and name.lower() in ours):
        raise ValueError(f"there is a column {twice[0]} already, which the store's one would become: rename the one of the rows")
    lower = [name.lower() for name in found.values()]
    if twice := sorted(name for name in found.values() if lower.count(name.lower()) > 1):
        raise ValueError(
            f"two columns of the store would be called {twice[0]}: rename the one of the rows that has the name without right_"
        )
    return found


def key_rows(index: Mapping[Any, int], keys: Sequence[Any]) -> Any:
    """For each row of the key columns its number in the index; null where there is none. Each distinct key is looked for once."""
    if len(keys) == 1:
        encoded = keys[0].dictionary_encode()
        found = pa.array([index.get(key) for key in encoded.dictionary.to_pylist()], pa.int64())
        return found.take(encoded.indices)
    return pa.array([index.get(key) for key in zip(*(each.to_pylist() for each in keys), strict=True)], pa.int64())
