"""A table can be read without Spark: the rows of one snapshot, all columns as the table has them, nothing that no commit names."""

import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pad
import pyarrow.parquet as pq
import pytest

from moldau.lake.dataset import scan
from moldau.lake.table import remove_orphans
from moldau.lake.tables.data_files import DAY, DataFile
from moldau.lake.tables.format import TableChange, TableError
from moldau.lake.tables.opening import FORMATS, format_named, open_or_create, opened
from moldau.lake.tables.rewriting import compact_table
from support.number_table import NumberTable

TEXT = pa.string()


@pytest.fixture(params=FORMATS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_scan_has_the_rows_of_the_newest_version_and_its_partition_columns(kind: str, tmp_path: Path) -> None:
    table = NumberTable(kind, tmp_path / "a täble [1]")
    table.load(1, 2)
    table.load(3, day=1)
    table.write([9])  # of a load that was killed
    found = scan(table.path)
    assert found.schema == table.schema
    rows = found.to_table().sort_by("n").to_pylist()
    assert [(row["n"], row[DAY]) for row in rows] == [(1, date(1970, 1, 1)), (2, date(1970, 1, 1)), (3, date(1970, 1, 2))]


def test_an_older_version_can_be_scanned_and_a_scan_does_not_change_with_the_table(kind: str, tmp_path: Path) -> None:
    table = NumberTable(kind, tmp_path / "table")
    first = table.load(1)
    before = scan(table.path)
    table.load(2)
    compact_table(table.path)
    assert sorted(before.to_table()["n"].to_pylist()) == [1]
    assert sorted(scan(table.path, version=first).to_table()["n"].to_pylist()) == [1]
    assert table.numbers() == [1, 2]


def test_a_table_without_rows_has_its_columns(kind: str, tmp_path: Path) -> None:
    table = NumberTable(kind, tmp_path / "table")
    found = scan(table.path)
    assert (found.schema, found.count_rows()) == (table.schema, 0)


def test_files_of_older_schemas_give_nulls_and_wider_types_at_any_depth(kind: str, tmp_path: Path) -> None:
    """A column, a field of a record, one of a record in a list: each is younger than the first file."""
    inner, wider = pa.struct([("x", pa.int32())]), pa.struct([("x", pa.int64()), ("y", TEXT)])
    old = [("n", pa.int32()), ("s", inner), ("l", pa.list_(pa.field("element", inner)))]
    new = [("n", pa.int64()), ("s", wider), ("l", pa.list_(pa.field("element", wider))), ("late", TEXT)]
    table = NumberTable(kind, tmp_path / "table", new)
    rows = [{"n": 1, "s": {"x": 5}, "l": [{"x": 6}, None]}, {"n": 2, "s": None, "l": None}]
    table.commit(TableChange("LOAD", table.write(pa.Table.from_pylist(rows, pa.schema(old)))))
    young = [{"n": 2**40, "s": {"x": 2**40, "y": "a"}, "l": [], "late": "b"}]
    table.commit(TableChange("LOAD", table.write(pa.Table.from_pylist(young, pa.schema(new)))))
    found = scan(table.path).to_table(columns=["n", "s", "l", "late"]).sort_by("n")
    assert found.schema == pa.schema(new)
    assert found.to_pylist() == [
        {"n": 1, "s": {"x": 5, "y": None}, "l": [{"x": 6, "y": None}, None], "late": None},
        {"n": 2, "s": None, "l": None, "late": None},
        *young,
    ]


def test_a_filter_on_a_partition_column_opens_no_other_file(kind: str, tmp_path: Path) -> None:
    table = NumberTable(kind, tmp_path / "table")
    table.load(1)
    table.load(2, day=1)
    table.file(0).unlink()  # reading it would fail
    second = pad.field(DAY) == date(1970, 1, 2)
    assert scan(table.path).to_table(filter=second)["n"].to_pylist() == [2]
    with pytest.raises(FileNotFoundError):
        scan(table.path).to_table()


def test_a_partition_may_have_no_value_and_columns_other_types(kind: str, tmp_path: Path) -> None:
    """Tables of others are partitioned by other columns than a day."""
    tables, path = format_named(kind), str(tmp_path / "table")
    schema = pa.schema([("n", pa.int64()), ("name", TEXT), ("number", pa.int32()), ("yes", pa.bool_())])
    open_or_create(tables, path, schema, ["name", "number", "yes"], "")
    files: list[DataFile] = []
    partitions: list[tuple[str | None, ...]] = [("it's", "7", "true"), (None, None, None)]
    for number, values in enumerate(partitions):
        pq.write_table(pa.table({"n": [number]}), tmp_path / "table" / f"{number}.parquet")
        size = (tmp_path / "table" / f"{number}.parquet").stat().st_size
        files.append(DataFile(f"{number}.parquet", dict(zip(("name", "number", "yes"), values, strict=True)), size, 1, '{"numRecords":1}'))
    base = tables.open(path)
    assert base is not None
    tables.put(path, base, TableChange("LOAD", files))
    rows = scan(path).to_table().sort_by("n").to_pylist()
    assert rows == [{"n": 0, "name": "it's", "number": 7, "yes": True}, {"n": 1, "name": None, "number": None, "yes": None}]
    assert scan(path).to_table(filter=pad.field("name").is_null())["n"].to_pylist() == [1]


def test_what_cannot_be_scanned_is_named(kind: str, tmp_path: Path) -> None:
    table = NumberTable(kind, tmp_path / "table")
    table.load(1)
    with pytest.raises(TableError, match=f"{tmp_path}/none: there is no table"):
        scan(str(tmp_path / "none"))
    for version in (7, -1):
        with pytest.raises(TableError, match=f"{table.path}: there is no version {version}, the newest is 1"):
            scan(table.path, version=version)
    with pytest.raises(TableError, match="gs://bucket/table: tables lie in directories of this machine"):
        scan("gs://bucket/table")
    with pytest.raises(TableError, match="inside _delta_log"):
        scan(str(tmp_path / "table" / "_delta_log"))


def test_a_partition_value_of_another_type_is_named(tmp_path: Path) -> None:
    table = NumberTable("parquet", tmp_path / "table")
    (file,) = table.write([1])
    table.commit(TableChange("LOAD", [DataFile(file.path, {DAY: "yesterday"}, file.size, 1, "")]))
    with pytest.raises(TableError, match=r"'yesterday' is no value of partition column event_day, which is date32\[day\]"):
        scan(table.path)


def test_neither_spark_nor_a_client_is_loaded(kind: str, tmp_path: Path) -> None:
    """What queries a table has no Java, and no broker."""
    table = NumberTable(kind, tmp_path / "table")
    table.load(1)
    program = (
        "import sys; from moldau.lake import scan; from moldau.lake.dataset import scan as same; assert scan is same\n"
        f"assert scan({table.path!r}).count_rows() == 1\n"
        "print([name for name in ('pyspark', 'py4j', 'confluent_kafka') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_queries_of_the_documentation_give_the_same_answer(kind: str, tmp_path: Path) -> None:
    """DuckDB and Polars over a scan, as docs/lake.md has them, beside Arrow's own."""
    from support.pages import ROOT, block_with

    columns = [("carrier", TEXT), ("dep_delay", pa.int64())]
    table = NumberTable(kind, tmp_path / "departures", columns)
    days: list[list[tuple[str, int | None]]] = [[("AA", 5), ("UA", 7)], [("AA", 1), ("AA", 3), ("UA", None)]]
    for day, rows in enumerate(days):
        made = pa.Table.from_pylist([{"carrier": carrier, "dep_delay": delay} for carrier, delay in rows], pa.schema(columns))
        table.commit(TableChange("LOAD", table.write(made, day)))
    table.file(0).unlink()  # of another day than the one that is asked for: neither opens it
    answers: list[Any] = []
    for words in ("import duckdb", "import polars"):
        text = (
            block_with(ROOT / "docs" / "lake.md", "python", words)
            .replace("/lake/departures", table.path)
            .replace("2013, 7, 1", "1970, 1, 2")
        )
        text = text.replace("2013-07-01", "1970-01-02")
        known: dict[str, Any] = {}
        exec(compile(text, "docs/lake.md", "exec"), known)
        answers.append(known["answer"])
    assert [sorted(rows) for rows in answers] == [[("AA", 2, 2.0), ("UA", 1, None)]] * 2


def test_a_table_of_another_program_is_read_whatever_text_its_partitions_have(tmp_path: Path) -> None:
    """Folders have encoded names, and the log encodes these once more. A repair takes none of the files for an orphan."""
    from deltalake import write_deltalake

    from moldau.lake.doctor.examination import examine

    texts = ["a b", "x/y:z", None, "50%", "ä+b", "c=d"]
    path = tmp_path / "other"
    for _ in range(2):
        write_deltalake(str(path), pa.table({"n": list(range(len(texts))), "p": texts}), partition_by=["p"], mode="append")
    rows = scan(str(path)).to_table().to_pylist()
    assert sorted(rows, key=lambda row: row["n"])[::2] == [{"n": number, "p": text} for number, text in enumerate(texts)]
    assert scan(str(path)).to_table(filter=pad.field("p") == "50%")["n"].to_pylist() == [3, 3]
    for file in path.glob("p=*/*.parquet"):
        os.utime(file, (0, 0))
    facts = examine(str(path))
    assert (list(facts.missing), facts.unneeded.kept, facts.unneeded.expired, facts.footers.read) == ([], 0, 0, 12)
    format_named("delta").put(str(path), opened(str(path)), TableChange("DELETE", removes=opened(str(path)).files()))
    assert scan(str(path)).count_rows() == 0, "removed are the files that were added"
    assert remove_orphans(str(path)) == [], "versions of the last week name them"
    assert len(remove_orphans(str(path), 0)) == 12


@pytest.mark.parametrize(("reader", "features"), [(2, None), (3, ["deletionVectors"])])
def test_a_table_that_needs_a_reader_with_more_is_refused(reader: int, features: list[str] | None, tmp_path: Path) -> None:
    """Its files have rows that were deleted, or columns under other names: answers would be wrong."""
    table = NumberTable("delta", tmp_path / "table")
    table.load(1)
    protocol = {"minReaderVersion": reader, "minWriterVersion": 5 if features is None else 7}
    if features is not None:
        protocol |= {"readerFeatures": features, "writerFeatures": features}  # type: ignore[dict-item]
    version = Path(table.path, "_delta_log", f"{2:020d}.json")
    version.write_text(f'{{"commitInfo":{{"operation":"UPGRADE","timestamp":1}}}}\n{json.dumps({"protocol": protocol})}\n')
    with pytest.raises(TableError, match=rf"the table needs a reader of version {reader}.*; this one is of version 1"):
        scan(table.path)


def test_a_table_without_partitions_is_read(kind: str, tmp_path: Path) -> None:
    tables, path = format_named(kind), str(tmp_path / "table")
    open_or_create(tables, path, pa.schema([("n", pa.int64())]), [], "")
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "table" / "a.parquet")
    file = DataFile("a.parquet", {}, (tmp_path / "table" / "a.parquet").stat().st_size, 2, '{"numRecords":2}')
    tables.put(path, opened(path), TableChange("LOAD", [file]))
    assert scan(path).to_table()["n"].to_pylist() == [1, 2]
