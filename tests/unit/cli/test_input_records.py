"""Every line of an input file becomes a record or a named complaint; no line is lost, none stops the ones after it."""

import io
import json
import re
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli.input_records import BadLine, Input, InputRecord, read_csv, read_json, read_lines


def told(records: Iterable[Input]) -> list[tuple[int, bytes | None, bytes] | tuple[int, str]]:
    """Records and complaints as tuples, for comparing."""
    return [(r.line, r.key, r.value) if isinstance(r, InputRecord) else (r.line, r.reason) for r in records]


def test_lines_are_sent_as_they_are_without_their_ends() -> None:
    source = io.BytesIO(b"one\r\n\xff\xfe\n\n last")
    assert told(read_lines(source)) == [(1, None, b"one"), (2, None, b"\xff\xfe"), (3, None, b""), (4, None, b" last")]


def test_the_key_stands_before_the_first_separator() -> None:
    source = io.BytesIO(b"a:b:c\n:x\nplain\ny:\n")
    assert told(read_lines(source, key_separator=b":")) == [
        (1, b"a", b"b:c"),
        (2, b"", b"x"),
        (3, "no key separator ':'"),
        (4, b"y", b""),
    ]


def test_a_line_beyond_the_bound_is_reported_and_passed_over() -> None:
    source = io.BytesIO(b"ab\n" + b"x" * 50 + b"\ncd\n" + b"y" * 9)
    assert told(read_lines(source, line_bytes_max=8)) == [
        (1, None, b"ab"),
        (2, "line longer than 8 bytes"),
        (3, None, b"cd"),
        (4, "line longer than 8 bytes"),
    ]


@given(st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\n", b"").rstrip(b"\r")), max_size=20))
def test_lines_survive_the_way_through_a_file(lines: list[bytes]) -> None:
    source = io.BytesIO(b"".join(line + b"\n" for line in lines))
    assert [r.value for r in read_lines(source) if isinstance(r, InputRecord)] == lines


def test_json_lines_are_checked_and_sent_byte_for_byte() -> None:
    source = io.BytesIO(b'\xef\xbb\xbf{"a": 1}\n\n [1, 2]  \r\n"x"')
    assert told(read_json(source)) == [(1, None, b'{"a": 1}'), (3, None, b"[1, 2]"), (4, None, b'"x"')]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a": }', "not JSON: Expecting value at column 7"),
        (b'{"a": 1} x', "not JSON: Extra data at column 10"),
        (b'  {"a": }', "not JSON: Expecting value at column 9"),
        (b'"\xff"', "not UTF-8: byte 0xff at column 2"),
        (b"NaN", "not JSON: NaN is not a JSON value"),
        (b"[" * 100_000, "not JSON: "),
    ],
)
def test_what_is_not_json_is_told_with_its_place(line: bytes, reason: str) -> None:
    bad, good = read_json(io.BytesIO(line + b"\n1\n"))
    assert isinstance(bad, BadLine)
    assert bad.line == 1
    assert bad.reason.startswith(reason)
    assert good == InputRecord(2, None, b"1")


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ('"N14228"', b"N14228"),
        ('"\\u00fc"', "ü".encode()),
        ("42", b"42"),
        ("true", b"true"),
        ("1.50", b"1.5"),
        ('{"b": [1, 2]}', b'{"b":[1,2]}'),
        ("null", None),
        ('""', b""),
    ],
)
def test_a_field_of_any_type_can_be_the_key(value: str, key: bytes | None) -> None:
    (record,) = read_json(io.BytesIO(f'{{"tail": {value}}}'.encode()), key_field="tail")
    assert isinstance(record, InputRecord)
    assert record.key == key


def test_a_key_within_objects_is_named_by_its_path() -> None:
    source = io.BytesIO(b'{"user":{"id":7},"user.id":"dotted"}\n{"user":{"id":7}}\n{"user":{}}\n{"user":[1]}\n{}\n')
    assert told(read_json(source, key_field="user.id")) == [
        (1, b"dotted", b'{"user":{"id":7},"user.id":"dotted"}'),
        (2, b"7", b'{"user":{"id":7}}'),
        (3, "no field 'user.id': user has no 'id'"),
        (4, "no field 'user.id': user has no 'id'"),
        (5, "no field 'user.id'"),
    ]


@pytest.mark.parametrize(("pattern", "key"), [(rb"^[0-9.]+", b"10.0.0.1"), (rb"user=(\w+)", b"ann"), (rb"user=(\w+)|x()", b"ann")])
def test_a_key_is_cut_out_of_the_line_and_the_line_stays_whole(pattern: bytes, key: bytes) -> None:
    source = io.BytesIO(b"10.0.0.1 GET /?user=ann \xff\nnothing\n")
    first, second = read_lines(source, key_pattern=re.compile(pattern))
    assert first == InputRecord(1, key, b"10.0.0.1 GET /?user=ann \xff")
    assert isinstance(second, BadLine)
    assert second.reason.startswith("no key: nothing matches")


def test_a_line_without_the_key_field_is_bad() -> None:
    source = io.BytesIO(b'{"a":1}\n[1]\n{"tail":"x"}\n')
    assert told(read_json(source, key_field="tail")) == [
        (1, "no field 'tail'"),
        (2, "no field 'tail': the line is not a JSON object"),
        (3, b"x", b'{"tail":"x"}'),
    ]


def test_a_csv_row_becomes_an_object_of_strings() -> None:
    source = io.BytesIO('\ufeffid,name\r\n1,"a, ""b"""\r\n\r\n2,"two\nlines"\r\n3,ü\r\n'.encode())
    assert told(read_csv(source, key_field="id")) == [
        (2, b"1", b'{"id":"1","name":"a, \\"b\\""}'),
        (4, b"2", b'{"id":"2","name":"two\\nlines"}'),
        (6, b"3", '{"id":"3","name":"ü"}'.encode()),
    ]


def test_bad_rows_are_told_and_the_next_row_is_read() -> None:
    source = io.BytesIO(b'a,b\n1\n1,2,3\n"x"y,2\n\xff,1\n5,6\n')
    assert told(read_csv(source)) == [
        (2, "1 field where 2 columns are named"),
        (3, "3 fields where 2 columns are named"),
        (4, "not CSV: ',' expected after '\"'"),
        (5, "not UTF-8: byte 0xff at column 1"),
        (6, None, b'{"a":"5","b":"6"}'),
    ]


def test_a_quote_that_never_ends_is_told_at_the_line_where_it_begins() -> None:
    good, bad = read_csv(io.BytesIO(b'a,b\n1,2\n3,"4\n5,6\n'))
    assert isinstance(good, InputRecord)
    assert isinstance(bad, BadLine)
    assert (bad.line, bad.reason) == (3, "not CSV: unexpected end of data")


def test_columns_may_be_named_where_the_file_has_no_header() -> None:
    source = io.BytesIO(b"1;x\n")
    assert told(read_csv(source, columns=["id", "name"], delimiter=";")) == [(1, None, b'{"id":"1","name":"x"}')]


@pytest.mark.parametrize(
    ("header", "key_field", "reason"),
    [(b"a,b,a\n1,2,3\n", None, "columns named twice: a"), (b"a,b\n1,2\n", "c", "no column 'c' among a, b")],
)
def test_a_header_that_cannot_work_is_the_only_complaint(header: bytes, key_field: str | None, reason: str) -> None:
    assert told(read_csv(io.BytesIO(header), key_field=key_field)) == [(1, reason)]


@pytest.mark.parametrize("reader", [read_lines, read_json, read_csv])
def test_an_empty_file_has_no_records(reader: Callable[[io.BytesIO], Iterable[Input]]) -> None:
    assert list(reader(io.BytesIO(b""))) == []


@given(st.binary(max_size=200), st.sampled_from(["json", "csv", "lines"]))
def test_any_bytes_give_records_or_complaints_and_values_are_json_where_promised(data: bytes, kind: str) -> None:
    readers: dict[str, Callable[[io.BytesIO], Iterable[Input]]] = {"json": read_json, "csv": read_csv, "lines": read_lines}
    last = 0
    for item in readers[kind](io.BytesIO(data)):
        assert item.line >= last
        last = item.line
        if isinstance(item, InputRecord) and kind != "lines":
            json.loads(item.value)
