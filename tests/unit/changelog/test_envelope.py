"""Changes are written in Debezium's envelope, a deletion with a tombstone, and read back; records of Debezium are read as well.
What is none of these is refused with topic, partition and offset.
"""

import json
from decimal import Decimal
from typing import Any

import pytest

from moldau.changelog.envelope import (
    ChangeRecord,
    CommitRecord,
    TableRecord,
    Tombstone,
    decode_change,
    decode_commit,
    encode_change,
    encode_commit,
    encode_table,
)
from moldau.changelog.errors import RecordError, ValueRefusedError
from moldau.changelog.values import Change, Commit, Op, Row, Table

ORDERS = Table("orders", {"id": "integer", "total": "decimal"}, ("id",))
ROW: Row = {"id": 1, "total": Decimal("9.90")}
CREATE = Change("orders", Op.CREATE, (1,), None, ROW)
DELETE = Change("orders", Op.DELETE, (1,), ROW, None)
COMMIT = Commit(2, 3, 17, 1_700_000_000_000, [CREATE, DELETE], {"lsn": "0/16B3748"})


def decoded(key: bytes | None, value: bytes | None, topic: str = "shop.orders", partition: int = 2) -> ChangeRecord | Tombstone:
    return decode_change(topic, partition, 40, key, value)


def test_a_change_is_an_envelope_with_its_commit_in_the_source() -> None:
    ((key, value),) = encode_change("shop", COMMIT, 4, CREATE, ORDERS)
    assert key == b'{"id":1}'
    assert value is not None
    assert json.loads(value) == {
        "op": "c",
        "before": None,
        "after": {"id": 1, "total": {"decimal": "9.90"}},
        "source": {
            "connector": "moldau",
            "changelog": "shop",
            "shard": 2,
            "epoch": 3,
            "commit": 17,
            "table": "orders",
            "ts_ms": 1_700_000_000_000,
        },
        "ts_ms": 1_700_000_000_000,
        "transaction": {"id": "2:17", "total_order": 5},
    }
    assert decoded(key, value) == ChangeRecord(2, 3, 17, 4, CREATE, ("id",), 1_700_000_000_000, "2:17")


def test_a_deletion_is_its_envelope_and_a_tombstone() -> None:
    (first, value), (second, nothing) = encode_change("shop", COMMIT, 1, DELETE, ORDERS)
    assert (first, nothing) == (second, None)
    found = decoded(first, value)
    assert isinstance(found, ChangeRecord)
    assert found.change == DELETE
    assert decoded(second, None) == Tombstone(2, "orders", (1,), ("id",))


def test_the_columns_of_a_key_are_in_its_order() -> None:
    lines = Table("lines", {"line": "integer", "order": "text"}, ("order", "line"))
    change = Change("lines", Op.DELETE, ("a", 2), None, None)
    (key, value), _ = encode_change("shop", COMMIT, 0, change, lines)
    assert key == b'{"order":"a","line":2}'
    found = decoded(key, value)
    assert isinstance(found, ChangeRecord)
    assert (found.change, found.key_columns) == (change, ("order", "line"))


def test_a_commit_is_read_back() -> None:
    key, value = encode_commit("shop", COMMIT, {"orders": 2})
    assert key == b'{"shard":2}'
    found = decode_commit("shop._commits", 2, 7, key, value)
    assert found == CommitRecord(2, 3, 17, 1_700_000_000_000, {"orders": 2}, {"lsn": "0/16B3748"})


def test_a_table_is_read_back() -> None:
    key, value = encode_table("shop", 2, ORDERS)
    assert key == b'{"shard":2,"table":"orders"}'
    assert decode_commit("shop._commits", 2, 7, key, value) == TableRecord(2, ORDERS)


def test_a_value_that_cannot_be_written_is_refused_with_commit_table_key_and_column() -> None:
    change = Change("orders", Op.CREATE, (1,), None, {"id": 1, "total": object()})  # type: ignore[dict-item]
    with pytest.raises(ValueRefusedError, match=r"shop, shard 2, commit 17: table orders, key \(1,\): column total: "):
        encode_change("shop", COMMIT, 0, change, ORDERS)


def test_text_with_a_lone_surrogate_is_escaped_and_read_back() -> None:
    row: Row = {"id": 1, "total": "\udcff"}
    ((key, value),) = encode_change("shop", COMMIT, 0, Change("orders", Op.CREATE, (1,), None, row), ORDERS)
    found = decoded(key, value)
    assert isinstance(found, ChangeRecord)
    assert found.change.after == row


# Records of Debezium's connectors

FIELDS = [
    {"field": "id", "type": "int32", "optional": False},
    {"field": "total", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
    {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
]
SCHEMA = {"type": "struct", "fields": [{"field": name, "type": "struct", "fields": FIELDS} for name in ("before", "after")]}
KEY_SCHEMA = {"type": "struct", "fields": FIELDS[:1]}


def debezium(op: str = "c", **parts: Any) -> dict[str, Any]:
    envelope = {
        "op": op,
        "before": None,
        "after": {"id": 1, "total": "A94=", "day": 20454},
        "source": {"connector": "postgresql", "schema": "public", "table": "orders", "ts_ms": 1_700_000_000_000, "lsn": 24023128},
        "ts_ms": 1_700_000_000_500,
        "transaction": None,
    }
    return envelope | parts


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


def test_an_envelope_with_its_schema_has_the_values_that_the_types_mean() -> None:
    key, value = {"schema": KEY_SCHEMA, "payload": {"id": 1}}, {"schema": SCHEMA, "payload": debezium()}
    found = decoded(as_json(key), as_json(value), "server.public.orders", 0)
    assert isinstance(found, ChangeRecord)
    assert found.change.table == "public.orders"
    assert found.change.key == (1,)
    assert str(found.change.after) == "{'id': 1, 'total': Decimal('9.90'), 'day': datetime.date(2026, 1, 1)}"
    assert (found.shard, found.epoch, found.commit, found.time_ms) == (0, 0, 0, 1_700_000_000_000)


def test_a_change_and_a_tombstone_of_a_topic_are_of_the_same_table() -> None:
    change, tombstone = (decoded(b'{"id":1}', value, "server.public.orders") for value in (as_json(debezium()), None))
    assert isinstance(change, ChangeRecord)
    assert isinstance(tombstone, Tombstone)
    assert change.change.table == tombstone.table == "public.orders"
    for value in (as_json(debezium()), None):
        with pytest.raises(
            RecordError, match=r"^partition orders-2 at offset 40: topic orders is not named as that of a changelog's table"
        ):
            decoded(b'{"id":1}', value, "orders")


def test_an_envelope_without_its_schema_has_the_values_as_json_has_them() -> None:
    found = decoded(b'{"id":1}', as_json(debezium("r")), "server.public.orders", 0)
    assert isinstance(found, ChangeRecord)
    assert (found.change.op, found.change.after) == (Op.READ, {"id": 1, "total": "A94=", "day": 20454})


def test_a_transaction_of_debezium_is_kept() -> None:
    found = decoded(b'{"id":1}', as_json(debezium(transaction={"id": "571:53195832", "total_order": 3, "data_collection_order": 2})))
    assert isinstance(found, ChangeRecord)
    assert (found.transaction, found.index) == ("571:53195832", 2)


REFUSED: list[tuple[bytes | None, bytes | None, str]] = [
    (None, as_json(debezium()), "it has no key"),
    (b"[]", as_json(debezium()), "the key is no object"),
    (b"{}", as_json(debezium()), "the key has no columns"),
    (b"{", as_json(debezium()), "the key is no JSON"),
    (b'{"id":1}', b"\xff\xfe", "the value is no JSON"),
    (b'{"id":1}', b"[" * 100_000, "recursion|no JSON"),
    (b'{"id":1}', b'{"id":1,"total":2}', "it has no 'op'"),
    (b'{"id":1}', as_json(debezium("t")), "truncated in the source"),
    (b'{"id":1}', as_json(debezium("m")), "no change of a row"),
    (b'{"id":1}', as_json(debezium("x")), "'x' is not a valid Op"),
    (b'{"id":1}', as_json(debezium("d")), "op d with a row after"),
    (b'{"id":1}', as_json(debezium("u", after=None)), "op u without a row after"),
    (b'{"id":1}', as_json(debezium(after=[1])), "a row is an object"),
    (b'{"id":1}', as_json(debezium(after={"id": 1, "place": {"x": 1, "y": 2}})), "column place"),
    (b'{"id":1}', as_json(debezium(after={"id": 1, "text": "__debezium_unavailable_value"})), "column text: .* REPLICA IDENTITY FULL"),
]


@pytest.mark.parametrize(("key", "value", "reason"), REFUSED, ids=[each[2] for each in REFUSED])
def test_what_is_no_change_is_refused_with_topic_partition_and_offset(key: bytes | None, value: bytes | None, reason: str) -> None:
    with pytest.raises(RecordError, match=rf"^partition shop.orders-2 at offset 40: .*{reason}"):
        decoded(key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b'{"shard":1}', None),
        (None, b"{}"),
        (b'{"shard":1}', b"{}"),
        (b'{"shard":1}', b'{"epoch":"x"}'),
        (b"7", b"{}"),
        (b'{"shard":1,"table":"t"}', b'{"columns":7,"key":[]}'),
    ],
)
def test_what_is_no_commit_is_refused_with_topic_partition_and_offset(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(RecordError, match=r"^partition shop._commits-1 at offset 3: "):
        decode_commit("shop._commits", 1, 3, key, value)
