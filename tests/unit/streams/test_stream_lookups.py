"""The rows of a table by their keys, and the names that its columns get. Spark is not started."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from moldau.streams.errors import StreamError
from moldau.streams.lookups import added_names
from moldau.streams.tables import TableStore

SCHEMA = pa.schema([("code", pa.string()), ("number", pa.int32()), ("city", pa.string())])


def store(path: Path, *key: str) -> TableStore:
    return TableStore(str(path), "cities", str(path.parent), key, ("city",), SCHEMA)


def found(path: Path, keys: list[Any], *names: str) -> list[str | None]:
    """The cities of these keys in the newest version."""
    it = store(path, *names)
    ((cities,), _) = it.load(it.newest(), None).columns(keys)
    return list(cities.to_pylist())


def test_several_rows_without_a_key_are_no_repetition(tmp_path: Path) -> None:
    """A null is no key, nor is a pair with a null; a key that is there twice is still named."""
    path = tmp_path / "cities"
    columns = {"code": ["EWR", None, None, "JFK"], "number": pa.array([1, 2, 2, None], pa.int32()), "city": ["Newark", "a", "b", "Queens"]}
    write_deltalake(str(path), pa.table(columns))
    assert found(path, [pa.array(["JFK", None, "EWR"])], "code") == ["Queens", None, "Newark"]
    assert found(path, [pa.array(["EWR", "JFK"]), pa.array([1, None], pa.int32())], "code", "number") == ["Newark", None]
    with pytest.raises(StreamError, match="the key 2 has several rows"):
        found(path, [pa.array([2], pa.int32())], "number")


def test_a_table_that_has_lost_its_key_is_named(tmp_path: Path) -> None:
    """Its rows would match nothing; and a column whose values cannot become those that the job knows is an error of the table's."""
    path = tmp_path / "cities"
    write_deltalake(str(path), pa.table({"id": ["EWR"], "city": ["Newark"]}))
    with pytest.raises(StreamError, match=r"cities, version 0: the table has no column code any more, by which the job looks its rows up"):
        found(path, [pa.array(["EWR"])], "code")
    write_deltalake(str(path), pa.table({"code": ["EWR"], "city": [["Newark"]]}), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(StreamError, match="cities, version 1: a value does not fit the columns"):
        found(path, [pa.array(["EWR"])], "code")


def test_no_two_columns_get_one_name() -> None:
    """Also where the store itself has one with right_ before its name."""
    rows = SimpleNamespace(columns=["code", "city"])
    assert added_names(rows, ["City", "seats"], ["code"], "version", "inner") == {"City": "right_City", "seats": "seats"}
    with pytest.raises(ValueError, match="two columns of the store would be called right_city"):
        added_names(rows, ["city", "right_city"], ["code"], "version", "inner")
