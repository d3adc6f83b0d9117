"""Files become events, each with the number of its line; what is no event keeps its bytes and gets a reason. Nothing disappears."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

from moldau.demo.file_input import CsvInput, JsonLinesInput, open_input
from moldau.demo.flights import FLIGHTS, JULY_MS, FlightsInput
from moldau.demo.inputs import LINE_FIELD, BadInputLine, InputError, InputEvent, key_of, service_name, time_of
from moldau.tracking.schemas.event_schema import event_schema


def bad(source: Any) -> dict[int, tuple[bytes, str]]:
    return {item.line: (item.raw, item.reason) for item in source.events() if isinstance(item, BadInputLine)}


def good(source: Any) -> list[InputEvent]:
    return [item for item in source.events() if isinstance(item, InputEvent)]


def types(source: Any) -> dict[str, Any]:
    """The types of the fields of a file of one schema, without the null that all but the line may be."""
    (schema,) = source.schemas()
    return {field["name"]: field["type"][1] if isinstance(field["type"], list) else field["type"] for field in schema["fields"]}


def assert_written(source: Any) -> None:
    """Every event can be written with its schema, by whoever gets the input in another process."""
    schemas = [event_schema(schema) for schema in source.schemas()]
    copy = pickle.loads(pickle.dumps(source))
    for event in good(copy):
        assert schemas[copy.version(event)].encode({LINE_FIELD: event.line, **event.fields})


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
    assert source.service == "some"
    assert types(source) == {"line": "long", "at": "string", "id": "long", "n": "long"}
    assert good(source) == [
        InputEvent(1, "7", 1_357_030_800_000, {"at": "2013-01-01T10:00:00+01:00", "id": 7, "n": 1}),
        InputEvent(9, None, None, {}),
    ]
    assert_written(source)
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
    assert types(source) == {
        "line": "long", "big": "long", "code": "string", "id": "long", "mixed": "double", "name": "string", "ok": "boolean"
    }  # fmt: skip
    whole = {"id": 1, "name": "a, b", "ok": True, "mixed": 1.0, "big": 12345678901234567, "code": "007"}
    assert good(source) == [
        InputEvent(2, "a, b", None, whole),
        InputEvent(4, "two\nlines", None, {"id": 2, "name": "two\nlines", "ok": False, "mixed": 2.5, "big": 1, "code": "8"}),
        InputEvent(6, "x", None, {"id": 3, "name": "x", "ok": True, "mixed": None, "big": None, "code": None}),
    ]
    assert_written(source)
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
        CsvInput(path, "key", None).schemas()


def test_a_json_file_without_events_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no event in it"):
        JsonLinesInput(json_file(tmp_path, b"x", b""), None, None).schemas()
    with pytest.raises(InputError, match="No such file"):
        JsonLinesInput(tmp_path / "none", None, None).schemas()


def test_names_fit_avro_and_the_table(tmp_path: Path) -> None:
    """Names of columns are changed where Avro or the table cannot have them; nested values follow. Two that become one are refused."""
    line = b'{"Trip ID": 1, "line": 2, "event_day": "x", "in": {"a b": [1, null], "9": {"c": true}}}'
    source = JsonLinesInput(json_file(tmp_path, line, b'{"Trip ID": 2}'), "Trip ID", None)
    (schema,) = source.schemas()
    assert {field["name"]: field.get("doc") for field in schema["fields"] if field["name"] != "line"} == {
        "Trip_ID": "Trip ID in the file",
        "event_day_": "event_day in the file",
        "in": None,
        "line_": "line in the file",
    }
    assert [(event.key, event.fields) for event in good(source)] == [
        ("1", {"Trip_ID": 1, "line_": 2, "event_day_": "x", "in": {"a_b": [1, None], "_9": {"c": True}}}),
        ("2", {"Trip_ID": 2}),
    ]
    assert_written(source)
    with pytest.raises(InputError, match="fields 'a b' and 'A_B' would have one name"):
        JsonLinesInput(json_file(tmp_path, b'{"a b": 1, "A_B": 2}'), None, None).schemas()


def test_three_hosts_share_the_lines_of_a_file(tmp_path: Path) -> None:
    path = json_file(tmp_path, *(b'{"n":%d}' % number if number % 4 else b"bad" for number in range(20)))
    source = open_input(path, None, None)
    source.schemas()
    parts = [list(source.events(host)) for host in range(len(source.hosts))]
    assert sorted(item.line for part in parts for item in part) == list(range(1, 21))
    assert sorted((item for part in parts for item in part), key=lambda item: item.line) == list(source.events())
    assert {item.line % 3 for item in parts[1]} == {1}
    late = [item.line for item in source.events() if isinstance(item, InputEvent) and source.planted(item)]
    assert min(late) == 10


@pytest.fixture
def some_flights(tmp_path: Path) -> tuple[FlightsInput, int]:
    """The input over a file of every twentieth of its lines, and how many these are."""
    source = FlightsInput()
    with zipfile.ZipFile(source._path) as archive:
        heading, *flights = archive.read("flights.csv").splitlines(keepends=True)
    assert len(flights) == FLIGHTS
    some = flights[::20]
    source._path = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(source._path, "w") as archive:
        archive.writestr("flights.csv", heading + b"".join(some))
    return source, len(some)


def test_every_flight_leaves_its_airport_once_in_order_of_time(some_flights: tuple[FlightsInput, int]) -> None:
    """UTC; all with a key; the second schema begins with July."""
    source, flights = some_flights
    old, new = (event_schema(schema) for schema in source.schemas())
    count, lines = 0, set()
    for number, host in enumerate(source.hosts):
        before = 0
        for event in source.events(number):
            assert isinstance(event, InputEvent)
            assert event.time_ms is not None
            assert event.time_ms >= before
            before = event.time_ms
            assert event.key
            assert event.fields["origin"].lower() == host.datacenter
            assert source.version(event) == (event.time_ms >= JULY_MS) == ("status" in event.fields)
            lines.add(event.line)
            count += 1
            if event.line == 2:
                assert (event.key, event.time_ms) == ("N14228", 1_357_035_300_000), "scheduled at 5:15 in New York is 10:15 UTC"
            if count % 50 == 0:
                (new if source.version(event) else old).encode({LINE_FIELD: event.line, **event.fields})
    assert (count, len(lines), min(lines), max(lines)) == (flights, flights, 2, flights + 1)


def test_times_and_keys() -> None:
    assert time_of("1970-01-01") == 0
    assert time_of("1970-01-01T00:00:01.5Z") == 1500
    assert time_of(7) == 7
    for wrong in (True, -1, 1 << 50, 1.5, "soon", "1969-12-31", None):
        with pytest.raises(ValueError, match=r"time|iso|1970"):
            time_of(wrong)
    assert [key_of(value) for value in (None, "a", 1, True, {"b": 1, "a": 2})] == [None, "a", "1", "true", '{"a":2,"b":1}']
    assert service_name(Path("some/a b.events.csv")) == "a-b"
