"""Files become events, each with the number of its line; what is no event keeps its bytes and gets a reason. Nothing disappears."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from moldau.client.partitioning import partition_of
from moldau.lake.demo.csv_input import CsvInput
from moldau.lake.demo.flights import FLIGHTS, FlightsInput
from moldau.lake.demo.inputs import BadLine, Event, InputError, key_of, time_of
from moldau.lake.demo.json_input import JsonLinesInput
from moldau.lake.demo.partitioning import Partitioner


def bad(source: Any) -> dict[int, tuple[bytes, str]]:
    return {item.line: (item.raw, item.reason) for item in source.events() if isinstance(item, BadLine)}


def good(source: Any) -> list[Event]:
    return [item for item in source.events() if isinstance(item, Event)]


def json_file(directory: Path, *lines: bytes) -> Path:
    path = directory / "some.events.jsonl"
    path.write_bytes(b"\n".join(lines))
    return path


def test_json_lines(tmp_path: Path) -> None:
    path = json_file(
        tmp_path,
        b'{"id": 7, "at": "2013-01-01T10:00:00+01:00", "n": 1.0}',
        b"",
        b'{"id":"8","at":1500,"n":0.5}',
        b"[]",
        b'{"id":9,"n":{"x":1}}',
        b'{"at":"tomorrow"}',
        b'{"id":1}\xff',
        b'{"id":10,"n":NaN}',
        b'{"id":null,"n":null}\r',
    )
    source = JsonLinesInput(path, "id", "at")
    assert source.topic == "some"
    assert source.schema() == pa.schema([("at", pa.string()), ("id", pa.int64()), ("n", pa.int64())])
    assert good(source) == [
        Event(1, "7", 1_357_030_800_000, b'{"at":"2013-01-01T10:00:00+01:00","id":7,"n":1}'),
        Event(9, None, None, b"{}"),
    ]
    reasons = bad(source)
    assert sorted(reasons) == [3, 4, 5, 6, 7, 8]
    assert reasons[3] == (b'{"id":"8","at":1500,"n":0.5}', "field id is text here, and a whole number before")
    assert reasons[4] == (b"[]", "not a JSON object")
    assert reasons[5][1] == "field n is an object here, and a whole number before"
    assert "Invalid isoformat string" in reasons[6][1]
    assert reasons[7][1].startswith("not UTF-8")
    assert reasons[8][1] == "not JSON: NaN is not a number in JSON"
    assert list(source.events()) == list(source.events()), "each time the same"


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(
        b"\xef\xbb\xbfid,name,ok,mixed,big,code\r\n"
        b'1,"a, b",true,1,12345678901234567,007\r\n'
        b'2,"two\nlines",false,2.5,1,8\r\n'
        b"\r\n"
        b"3,x,true,,,\r\n"
        b"4,too few\r\n"
        b"5,\xff,true,1,1,1\r\n"
        b'6,"torn,true,1,1,1\r\n'
    )
    source = CsvInput(path, "name", None)
    assert source.schema() == pa.schema(
        [("big", pa.int64()), ("code", pa.string()), ("id", pa.int64()), ("mixed", pa.float64()), ("name", pa.string()), ("ok", pa.bool_())]
    )
    assert good(source) == [
        Event(2, "a, b", None, b'{"big":12345678901234567,"code":"007","id":1,"mixed":1,"name":"a, b","ok":true}'),
        Event(4, "two\nlines", None, b'{"big":1,"code":"8","id":2,"mixed":2.5,"name":"two\\nlines","ok":false}'),
        Event(6, "x", None, b'{"id":3,"name":"x","ok":true}'),
    ]
    reasons = bad(source)
    assert reasons[7] == (b"4,too few", "2 cells under 6 headings")
    assert reasons[8][0] == b"5,\xff,true,1,1,1"
    assert reasons[9] == (b'6,"torn,true,1,1,1', "not CSV: unexpected end of data")


@pytest.mark.parametrize(
    ("content", "message"), [(b"", "it is empty"), (b"a,a\n1,2\n", "line 1: the headings"), (b"a,b\n1,2\n", "there is no column 'key'")]
)
def test_a_csv_file_that_cannot_be_used_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        CsvInput(path, "key", None).schema()


def test_a_json_file_without_events_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no event in it"):
        JsonLinesInput(json_file(tmp_path, b"x", b""), None, None).schema()
    with pytest.raises(InputError, match="No such file"):
        JsonLinesInput(tmp_path / "none", None, None).schema()


def test_flights_are_all_there_in_utc() -> None:
    source = FlightsInput()
    count, keyless, first, last = 0, 0, None, None
    for item in source.events():
        assert isinstance(item, Event)
        first, last, count, keyless = first or item, item, count + 1, keyless + (item.key is None)
    assert (count, keyless) == (FLIGHTS, 2_512)
    assert first is not None
    assert last is not None
    assert (first.line, last.line) == (2, FLIGHTS + 1)
    assert (first.key, first.time_ms) == ("N14228", 1_357_035_300_000), "scheduled at 5:15 in New York is 10:15 UTC"
    assert set(json.loads(first.payload)) <= set(source.schema().names)


def test_times_and_keys() -> None:
    assert time_of("1970-01-01") == 0
    assert time_of("1970-01-01T00:00:01.5Z") == 1500
    assert time_of(7) == 7
    for wrong in (True, -1, 1 << 50, 1.5, "soon", "1969-12-31", None):
        with pytest.raises(ValueError, match=r"time|iso|1970"):
            time_of(wrong)
    assert [key_of(value) for value in (None, "a", 1, True, {"b": 1, "a": 2})] == [None, "a", "1", "true", '{"a":2,"b":1}']


def test_a_partition_depends_on_the_key_or_else_on_the_line() -> None:
    one, other = Partitioner(6), Partitioner(6)
    for line in range(100):
        assert one.partition(None, line) == line % 6
        assert one.partition(f"N{line}", 0) == other.partition(f"N{line}", line) == partition_of(f"N{line}".encode(), 6)
