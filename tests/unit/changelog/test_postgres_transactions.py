"""Messages of a stream become transactions with values; what cannot be a change of a changelog is named (mission I5)."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest

from moldau.changelog.postgres.errors import StreamError, TableError
from moldau.changelog.postgres.pgoutput import UNCHANGED, Begin, Column, Columns, CommitEnd, Delete, Insert, Relation, Truncate, Update
from moldau.changelog.postgres.tables import TableName, name_of
from moldau.changelog.postgres.text_values import TYPES, parser_of, type_of
from moldau.changelog.postgres.transactions import NewView, Transaction, Transactions, Truncated
from moldau.changelog.spill import SpilledChanges
from moldau.changelog.values import Change, Op, Row, Table

OID = 16_400
ITEMS = TableName("public", "items")
PAIRS = TableName("sales", "pairs")
COLUMNS = (Column("id", 23, -1, True), Column("name", 25, -1, False), Column("day", 1082, -1, False))


def relation(identity: str = "d", columns: Sequence[Column] = COLUMNS, name: str = "items") -> Relation:
    return Relation(OID, "public", name, identity, tuple(columns))


def transactions(identity: str = "f", as_text: Sequence[str] = ()) -> Transactions:
    made = Transactions({ITEMS: ("id",)}, {ITEMS: set(as_text)})
    columns = [each._replace(is_identity=True) for each in COLUMNS] if identity == "f" else COLUMNS
    found = made.take(relation(identity, columns))
    assert isinstance(found, NewView)
    assert found.view.table == Table("items", {"id": "integer", "name": "text", "day": "text" if as_text else "date"}, ("id",))
    made.take(Begin(100, 0, 7))
    return made


def row(number: int, name: str | None = "x", day: date | None = None) -> Row:
    return {"id": number, "name": name, "day": day}


def changes(made: Transactions) -> Sequence[Change]:
    found = made.take(CommitEnd(100, 108, 1_700_000_000_123_456))
    assert isinstance(found, Transaction)
    assert (found.end_lsn, found.time_ms) == (108, 1_700_000_000_123)
    return found.changes


def test_changes_are_those_between_begin_and_commit() -> None:
    made = transactions()
    assert made.is_open
    made.take(Insert(OID, [b"1", b"x", b"2026-02-28"]))
    made.take(Update(OID, [b"1", b"x", b"2026-02-28"], True, [b"1", b"y", None]))
    made.take(None)
    made.take(Delete(OID, [b"1", b"y", None], True))
    day = date(2026, 2, 28)
    assert changes(made) == [
        Change("items", Op.CREATE, (1,), None, row(1, "x", day)),
        Change("items", Op.UPDATE, (1,), row(1, "x", day), row(1, "y")),
        Change("items", Op.DELETE, (1,), row(1, "y"), None),
    ]
    assert not made.is_open
    made.take(Begin(200, 0, 8))
    assert changes(made) == []


def test_a_key_that_changes_is_a_deletion_and_a_creation() -> None:
    made = transactions()
    made.take(Update(OID, [b"1", b"x", None], True, [b"2", UNCHANGED, None]))
    assert changes(made) == [Change("items", Op.DELETE, (1,), row(1), None), Change("items", Op.CREATE, (2,), None, row(2))]
    made = transactions("d")
    made.take(Update(OID, [b"1", None, None], False, [b"2", b"x", None]))
    made.take(Update(OID, None, False, [b"2", b"y", None]))
    assert changes(made) == [
        Change("items", Op.DELETE, (1,), None, None),
        Change("items", Op.CREATE, (2,), None, row(2)),
        Change("items", Op.UPDATE, (2,), None, row(2, "y")),
    ]


def test_a_key_that_is_equal_but_written_otherwise_is_another_key() -> None:
    """Else the topic keeps the row under both: 1.0 and 1.00 are different texts, and so are 0.0 and -0.0."""
    for oid, old, new in ((1700, b"1.0", b"1.00"), (701, b"0", b"-0"), (1700, b"1.0", b"1.0")):
        made = Transactions({ITEMS: ("id",)}, {})
        found = made.take(relation("f", [Column("id", oid, -1, True)]))
        assert isinstance(found, NewView)
        made.take(Begin(100, 0, 7))
        made.take(Update(OID, [old], True, [new]))
        view = found.view
        found_changes = [(each.op, view.record_key(each.key)) for each in changes(made)]
        keys = [view.record_key(view.key_in([text])) for text in (old, new)]
        if old == new:
            assert found_changes == [(Op.UPDATE, keys[0])]
        else:
            assert keys[0] != keys[1]
            assert found_changes == [(Op.DELETE, keys[0]), (Op.CREATE, keys[1])]


def test_a_value_that_is_not_sent_is_that_of_the_row_before_or_an_error() -> None:
    made = transactions()
    made.take(Update(OID, [b"1", b"long", None], True, [b"1", UNCHANGED, b"2026-02-28"]))
    assert changes(made)[0].after == row(1, "long", date(2026, 2, 28))
    with pytest.raises(TableError, match=r'table items, key 1: column name .*TOAST.* ALTER TABLE "public"."items" REPLICA IDENTITY FULL'):
        transactions("d").take(Update(OID, None, False, [b"1", UNCHANGED, None]))


def test_a_truncation_deletes_what_was_there_and_what_the_transaction_has_added() -> None:
    made = transactions()
    made.take(Insert(OID, [b"4", b"x", None]))
    made.take(Delete(OID, [b"1", b"x", None], True))
    found = made.take(Truncate((OID,)))
    assert isinstance(found, Truncated)
    made.delete_rows(found.tables[0], {found.tables[0].record_key(key): key for key in ((1,), (2,))})
    made.take(Insert(OID, [b"9", b"x", None]))
    assert [(each.op, each.key) for each in changes(made)[2:]] == [(Op.DELETE, (2,)), (Op.DELETE, (4,)), (Op.CREATE, (9,))]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (relation(name="other"), "table other is none of those that are published: items"),
        (relation("n"), "table items: its replica identity was changed"),
        (relation("d", [COLUMNS[0]._replace(is_identity=False), COLUMNS[1]._replace(is_identity=True)]), "it was id, and is of name"),
        (relation("f", [COLUMNS[1]._replace(is_identity=True)]), "it was id, and is of name"),
    ],
)
def test_tables_that_are_not_what_was_published_are_named(found: Relation, message: str) -> None:
    with pytest.raises(TableError, match=message):
        Transactions({ITEMS: ("id",)}, {}).take(found)


def test_a_table_that_was_renamed_is_named_with_both_names() -> None:
    with pytest.raises(TableError, match="table things, which was items before, is none of those that are published"):
        transactions().take(relation(name="things"))


def test_a_change_of_an_unknown_table_is_an_error_of_the_stream() -> None:
    with pytest.raises(StreamError, match="OID 5"):
        transactions().take(Insert(5, [b"1"]))


def test_a_value_that_python_lacks_is_named_and_can_be_text() -> None:
    values: Columns = [b"1", None, b"infinity"]
    with pytest.raises(TableError, match=r"table items, key 1: column day has a value .* 'infinity' .*as_text = items.day"):
        transactions().take(Insert(OID, values))
    made = transactions(as_text=["day"])
    made.take(Insert(OID, values))
    assert changes(made)[0].after == {"id": 1, "name": None, "day": "infinity"}
    with pytest.raises(TableError, match="a row has 1 columns, the table 3"):
        transactions().take(Insert(OID, [b"1"]))


def test_names_of_tables_have_their_schema_unless_it_is_public() -> None:
    assert (name_of("items"), name_of("public.items"), name_of("sales.pairs")) == (ITEMS, ITEMS, PAIRS)
    assert (ITEMS.published, PAIRS.published, TableName('a"b', "c d").quoted) == ("items", "sales.pairs", '"a""b"."c d"')


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("boolean", b"t", True),
        ("boolean", b"f", False),
        ("integer", b"-9223372036854775808", -(2**63)),
        ("real", b"-Infinity", float("-inf")),
        ("real", b"1e-300", 1e-300),
        ("decimal", b"12.50", Decimal("12.50")),
        ("text", "žluť".encode(), "žluť"),
        ("bytes", b"\\x00ff", b"\x00\xff"),
        ("bytes", b"\\x", b""),
        ("date", b"0001-01-01", date(1, 1, 1)),
        ("time", b"23:59:59.5", time(23, 59, 59, 500_000)),
        ("timestamp", b"2026-02-28 01:02:03.000004", datetime(2026, 2, 28, 1, 2, 3, 4)),  # noqa: DTZ001
        ("timestamptz", b"2026-02-28 01:02:03+00", datetime(2026, 2, 28, 1, 2, 3, tzinfo=UTC)),
    ],
)
def test_texts_become_values(kind: str, text: bytes, value: object) -> None:
    found = parser_of(kind)(text)
    assert (found, type(found), str(found)) == (value, type(value), str(value))


@pytest.mark.parametrize("text", [b"infinity", b"4000-01-01 BC", b"10000-01-01"])
def test_dates_that_python_lacks_are_errors(text: bytes) -> None:
    for kind in ("date", "timestamp"):
        with pytest.raises(ValueError, match=r"."):
            parser_of(kind)(text)
    with pytest.raises(ValueError, match="the hour 24"):
        parser_of("time")(b"24:00:00")


def test_types_without_one_of_our_own_are_text() -> None:
    assert {type_of(oid) for oid in (25, 1043, 2950, 114, 3802, 1186, 1007, 16_500)} == {"text"}
    assert type_of(1700) == "decimal"
    assert all(parser_of(kind) for kind in TYPES.values())


def test_a_transaction_beyond_its_bounds_is_in_a_file_and_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the number of changes, and by their bytes; a TRUNCATE in it deletes what is in the file too."""
    for bound, size in (("MEMORY_CHANGES", 0), ("MEMORY_BYTES", 10)):
        with monkeypatch.context() as patched:
            patched.setattr("moldau.changelog.postgres.transactions." + bound, 20)
            made = transactions()
            for number in range(50):
                made.take(Insert(OID, [b"%d" % number, b"x", None]), size)
            found = made.take(CommitEnd(100, 108, 0), size)
            assert isinstance(found, Transaction)
            assert isinstance(found.changes, SpilledChanges)
            assert list(found.changes) == [Change("items", Op.CREATE, (number,), None, row(number)) for number in range(50)]
            assert found.size == 51 * size
            found.close()
            made.take(Begin(200, 0, 8))
            for number in range(50):
                made.take(Insert(OID, [b"%d" % number, b"x", None]), size)
            truncated = made.take(Truncate((OID,)))
            assert isinstance(truncated, Truncated)
            made.delete_rows(truncated.tables[0], {})
            found = made.take(CommitEnd(100, 108, 0), size)
            assert isinstance(found, Transaction)
            assert [each.op for each in found.changes] == [Op.CREATE] * 50 + [Op.DELETE] * 50
            found.close()
            made.take(Begin(300, 0, 9))
            assert changes(made) == [], "nothing of the one before"
