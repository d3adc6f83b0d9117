"""A record is printed so that nothing about it is lost or mistaken: tombstones, bytes that are not text, hostile terminals."""

import json

import pytest

from moldau.cli.output_records import TemplateError, make_formatter
from moldau.model.identity import TopicPartition
from moldau.protocol.records.record import Columns

WHERE = TopicPartition("flights", 2)


def record(key: bytes | None = b"k", value: bytes | None = b"v", headers: tuple[tuple[str, bytes | None], ...] = ()) -> Columns:
    columns = Columns()
    add(columns, 41, key, value, headers)
    return columns


def add(to: Columns, offset: int, key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...] = ()) -> None:
    to.offsets.append(offset)
    to.timestamps.append(1_357_000_000_000)
    to.timestamp_types.append(0)
    to.keys.append(key)
    to.values.append(value)
    to.headers.append(list(headers))


@pytest.mark.parametrize(
    ("format_", "given", "printed"),
    [
        ("value", record(value=b"a\tb"), b"a\tb\n"),
        ("value", record(value=b""), b"\n"),
        ("value", record(value=None), b"null\n"),
        ("value", record(value=b"\xff\x1b[2J"), b"\xff\x1b[2J\n"),
        ("%t %p %o %k %s", record(), b"flights 2 41 k v\n"),
        ("%T|%K|%S|%%", record(key=None, value=b"four"), b"1357000000000|-1|4|%\n"),
        ("%h", record(headers=(("line", b"7"), ("none", None))), b"line=7,none=null\n"),
        ("%k\\t%s\\n", record(key=None), b"null\tv\n\n"),
        ("\u00fc%p", record(), "\u00fc2\n".encode()),
    ],
)
def test_values_and_templates(format_: str, given: Columns, printed: bytes) -> None:
    assert make_formatter(format_, terminal=False)(WHERE, given) == printed


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (b"plain \xc3\xbc", b"plain \xc3\xbc\n"),
        (b"\x1b[2J\x07", b"\\x1b[2J\\x07\n"),
        (b"\xff\x00", b"\\xff\\x00\n"),
        ("\u009b31m".encode(), b"\\x9b31m\n"),
        (b"a\tb\nc", b"a\tb\nc\n"),
    ],
)
def test_no_record_can_steer_the_terminal(value: bytes, printed: bytes) -> None:
    assert make_formatter("value", terminal=True)(WHERE, record(value=value)) == printed
    assert make_formatter("%s", terminal=True)(WHERE, record(value=value)) == printed


def test_json_carries_everything() -> None:
    line = make_formatter("json", terminal=False)(WHERE, record(headers=(("line", b"7"), ("raw", b"\xff"), ("none", None))))
    assert json.loads(line) == {
        "topic": "flights",
        "partition": 2,
        "offset": 41,
        "timestamp": 1_357_000_000_000,
        "timestamp_type": "create",
        "key": "k",
        "value": "v",
        "headers": [["line", "7"], ["raw", {"base64": "/w=="}], ["none", None]],
    }


@pytest.mark.parametrize(
    ("value", "shown"), [(None, None), (b"", ""), (b"\xff\xfe", {"base64": "//4="}), (b'{"base64":"x"}', '{"base64":"x"}')]
)
def test_json_tells_tombstones_bytes_and_text_apart(value: bytes | None, shown: object) -> None:
    assert json.loads(make_formatter("json", terminal=False)(WHERE, record(value=value)))["value"] == shown


def test_records_are_written_together_as_they_are_one_by_one() -> None:
    both = record(b"a%d", b"1")
    add(both, 42, None, None, (("h", b"%"),))
    write = {name: make_formatter(name, terminal=False) for name in ("value", "%o|%k|%s|%h", "%p%%", "json")}
    assert write["value"](WHERE, both) == b"1\nnull\n"
    assert write["%o|%k|%s|%h"](WHERE, both) == b"41|a%d|1|\n42|null|null|h=%\n"
    assert write["%p%%"](WHERE, both) == b"2%\n2%\n"
    assert [json.loads(line)["key"] for line in write["json"](WHERE, both).splitlines()] == ["a%d", None]


def test_decoded_columns_are_json_within_json() -> None:
    line = make_formatter("json", terminal=False, decoded=["values"])(WHERE, record(value=b'{"a":[1]}'))
    assert (json.loads(line)["key"], json.loads(line)["value"]) == ("k", {"a": [1]})


@pytest.mark.parametrize("format_", ["xml", "", "%x", "100%"])
def test_a_format_that_means_nothing_is_refused(format_: str) -> None:
    with pytest.raises(TemplateError, match="format"):
        make_formatter(format_, terminal=False)
