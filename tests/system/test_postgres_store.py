"""Replicas in PostgreSQL: the contract of all stores, and what is PostgreSQL's own (mission I5)."""

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import count

import pytest

from moldau.changelog.postgres.store import PostgresStore
from moldau.changelog.store import WHOLE, KeyRange, ReplicaStore, StoreError
from moldau.changelog.stores.dictionary import DictionaryStore
from moldau.changelog.values import Row, Table
from support import replica_stores
from support.postgres import PostgresServer
from support.replica_stores import ACCOUNTS, EMPTY, POSITION, TABLES, TYPES, ReplicaStoreContract, account, drop, put

pytestmark = pytest.mark.system

NUMBERS = count(1)


def without_nul(row: Row) -> Row:
    """PostgreSQL has no text with it."""
    return {name: value.replace("\0", "") if isinstance(value, str) else value for name, value in row.items()}


ROWS: Sequence[Row] = [without_nul(row) for row in replica_stores.ROWS]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def conninfo(server: PostgresServer) -> str:
    return server.create(f"a täble {next(NUMBERS)}".replace(" ", "_"))


class TestPostgres(ReplicaStoreContract):
    @pytest.fixture
    def place(self, conninfo: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], ReplicaStore]:
        monkeypatch.setattr(replica_stores, "ROWS", ROWS)
        return lambda sharded: PostgresStore(conninfo, sharded=sharded)


@pytest.fixture
def store(conninfo: str) -> Iterator[PostgresStore]:
    store = PostgresStore(conninfo)
    store.prepare("bank", TABLES)
    yield store
    store.close()


def test_its_checksums_are_those_of_other_stores(store: PostgresStore) -> None:
    other = DictionaryStore()
    other.prepare("bank", TABLES)
    for each in (store, other):
        each.apply(0, put(TYPES, *ROWS) + put(ACCOUNTS, *map(account, range(100))), POSITION)
    assert [store.checksum(0, table.name, WHOLE) for table in TABLES] == [other.checksum(0, table.name, WHOLE) for table in TABLES]


def test_ranges_over_decimals_are_refused(store: PostgresStore) -> None:
    prices = Table("prices", {"price": "decimal", "what": "text"}, ("price",))
    store.prepare("shop", [prices])
    store.apply(0, put(prices, {"price": Decimal(9)}, {"price": Decimal(10)}), POSITION)
    assert store.checksum(0, "prices", WHOLE).rows == 2
    with pytest.raises(StoreError, match="decimal price"):
        store.middle(0, "prices", WHOLE)
    with pytest.raises(StoreError, match="decimal price"):
        store.checksum(0, "prices", KeyRange((Decimal(1),), None))


def test_a_text_that_postgresql_does_not_have_is_named(store: PostgresStore) -> None:
    with pytest.raises(StoreError, match=r"PostgreSQL .*, table accounts, key \(2,\): .*NUL"):
        store.apply(0, put(ACCOUNTS, account(1), account(2, "a\0b")), POSITION)
    assert (store.rows(0, "accounts", WHOLE), store.positions()) == ([], {})


def test_values_of_two_types_in_one_portion_are_stored(store: PostgresStore) -> None:
    """A column that has got another type has values of both in the log."""
    mixed = Table("mixed", {"id": "integer", "what": "text"}, ("id",))
    store.prepare("shop", [mixed])
    store.apply(0, put(mixed, {"id": 1, "what": 1}, {"id": 2, "what": "x"}, {"id": 3, "what": None}), POSITION)
    assert store.rows(0, "mixed", WHOLE) == [((number,), {"id": number, "what": what}) for number, what in ((1, "1"), (2, "x"), (3, None))]
    assert store.positions() == {0: POSITION}


def test_a_number_among_texts_of_a_column_of_any_type_is_refused(store: PostgresStore) -> None:
    """SQLite has both in a column DATE; as text the number would be another value."""
    days = Table("days", {"id": "integer", "day": "any"}, ("id",))
    store.prepare("shop", [days])
    store.apply(0, put(days, {"id": 1, "day": "2026-01-02"}, {"id": 2, "day": None}), EMPTY)
    with pytest.raises(StoreError, match=r"table days, key \(4,\): column day is any, and cannot have 20260102"):
        store.apply(0, put(days, {"id": 3, "day": "2026-01-02"}, {"id": 4, "day": 20260102}), POSITION)
    assert [row["day"] for _, row in store.rows(0, "days", WHOLE)] == ["2026-01-02", None]
    assert store.positions() == {0: EMPTY}


def test_tables_that_are_there_keep_their_types(server: PostgresServer) -> None:
    """A database with the source's own schema takes the changes, so that it can become the source."""
    conninfo = server.create("own_schema")
    with server.connect("own_schema") as connection:
        connection.execute("CREATE SCHEMA sales")
        connection.execute("CREATE TABLE sales.items (id uuid PRIMARY KEY, doc jsonb, price numeric(8, 2), weight real, small smallint)")
    items = Table("sales.items", {"id": "text", "doc": "text", "price": "decimal", "weight": "real", "small": "integer"}, ("id",))
    key = "6f1c0a52-6a0b-4b5e-9d6e-0c1a2b3c4d5e"
    row: Row = {"id": key, "doc": '{"a": 1}', "price": Decimal("1.50"), "weight": 0.1, "small": 7}
    store = PostgresStore(conninfo)
    store.prepare("shop", [items])
    store.apply(0, put(items, row), POSITION)
    assert store.rows(0, "sales.items", WHOLE) == [((key,), row)]
    store.apply(0, drop(items, (key,)), POSITION)
    assert store.checksum(0, "sales.items", WHOLE).rows == 0
    store.close()


def test_a_value_that_is_too_long_for_a_column_is_refused_and_not_cut_off(server: PostgresServer) -> None:
    conninfo = server.create("short_columns")
    with server.connect("short_columns") as connection:
        connection.execute("CREATE TABLE codes (id varchar(3) PRIMARY KEY, code varchar(3), padded char(4))")
    codes = Table("codes", {"id": "text", "code": "text", "padded": "text"}, ("id",))
    store = PostgresStore(conninfo)
    store.prepare("shop", [codes])
    row: Row = {"id": "abc", "code": "xyz", "padded": "a   "}
    store.apply(0, put(codes, row), POSITION)
    assert store.rows(0, "codes", WHOLE) == [(("abc",), row)]
    for name in ("id", "code"):
        with pytest.raises(StoreError, match=r"table codes, key .*: value too long for type character varying\(3\)"):
            store.apply(0, put(codes, {**row, name: "abcd"}), POSITION)
    assert store.rows(0, "codes", WHOLE) == [(("abc",), row)]
    store.close()


def test_keys_that_the_table_would_make_itself_are_those_of_the_source(server: PostgresServer) -> None:
    conninfo = server.create("own_keys")
    with server.connect("own_keys") as connection:
        connection.execute("CREATE TABLE notes (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, words text)")
    notes = Table("notes", {"id": "integer", "words": "text"}, ("id",))
    store = PostgresStore(conninfo)
    store.prepare("shop", [notes])
    for words in ("a", "b"):
        store.apply(0, put(notes, {"id": 7, "words": words}), POSITION)
        assert store.rows(0, "notes", WHOLE) == [((7,), {"id": 7, "words": words})]
    store.close()


def test_a_table_whose_triggers_would_run_is_refused(server: PostgresServer) -> None:
    conninfo = server.create("with_triggers")
    with server.connect("with_triggers") as connection:
        connection.execute("CREATE TABLE counted (id bigint PRIMARY KEY)")
        connection.execute("CREATE FUNCTION count_it() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
        connection.execute("CREATE TRIGGER counting BEFORE INSERT ON counted FOR EACH ROW EXECUTE FUNCTION count_it()")
        counted = Table("counted", {"id": "integer"}, ("id",))
        store = PostgresStore(conninfo)
        with pytest.raises(StoreError, match=r'counted: its trigger counting .* ALTER TABLE "public"."counted" DISABLE TRIGGER'):
            store.prepare("shop", [counted])
        connection.execute("ALTER TABLE counted DISABLE TRIGGER counting")
        store.prepare("shop", [counted])
        store.apply(0, put(counted, {"id": 1}), POSITION)
        assert store.checksum(0, "counted", WHOLE).rows == 1
        store.close()


def test_names_with_signs_of_statements_are_only_names(store: PostgresStore) -> None:
    odd = Table('100% "odd"?', {"a%s": "integer", "b?%": "text"}, ("a%s",))
    store.prepare("shop", [odd])
    store.apply(0, put(odd, {"a%s": 1, "b?%": "x%s?"}, {"a%s": 2, "b?%": None}) + drop(odd, (2,)), POSITION)
    assert store.rows(0, odd.name, KeyRange((0,), (5,))) == [((1,), {"a%s": 1, "b?%": "x%s?"})]
    assert store.middle(0, odd.name, WHOLE) is None
    store.clear(0, EMPTY)
    assert store.checksum(0, odd.name, WHOLE).rows == 0


def test_it_continues_after_its_server_was_restarted(server: PostgresServer, store: PostgresStore) -> None:
    store.apply(0, put(ACCOUNTS, account(1)), EMPTY)
    server.restart()
    with pytest.raises(StoreError) as caught:
        store.apply(0, put(ACCOUNTS, account(2)), POSITION)
    assert caught.value.retriable
    assert store.positions() == {0: EMPTY}
    store.apply(0, put(ACCOUNTS, account(2)), POSITION)
    assert store.checksum(0, "accounts", WHOLE).rows == 2
