"""What a changelog writes of a change, it reads back: each value, with its type, whatever it is."""

from contextlib import suppress
from datetime import UTC, datetime, time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from moldau.changelog import arrivals
from moldau.changelog.envelope import ChangeRecord, decode_change, encode_change
from moldau.changelog.errors import RecordError
from moldau.changelog.row_records import table_record
from moldau.changelog.values import Change, Commit, Op, Table
from moldau.model.identity import TopicPartition
from moldau.protocol.records.record import Record

VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(st.characters()),
    st.binary(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.dates(),
    st.times(),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
)
NAMES = st.text(min_size=1)
ROWS = st.dictionaries(NAMES, VALUES, min_size=1, max_size=5)


def typed(found: Any) -> Any:
    """1, 1.0 and True are equal, and 0.0 and -0.0; these are not. Times without a zone have no fold."""
    match found:
        case dict():
            return {name: typed(value) for name, value in found.items()}
        case time() | datetime():
            return type(found), repr(found.replace(fold=0))
        case tuple():
            return tuple(map(typed, found))
        case _:
            return type(found), repr(found)


@given(row=ROWS, before=st.one_of(st.none(), ROWS), op=st.sampled_from(Op), index=st.integers(0, 2**40), number=st.integers(1, 2**62))
def test_a_change_is_read_back_as_it_was_written(
    row: dict[str, Any], before: dict[str, Any] | None, op: Op, index: int, number: int
) -> None:
    key = tuple(row.values())
    change = Change("t", op, key, before, None if op is Op.DELETE else row)
    commit = Commit(3, 2, number, 1_700_000_000_000, [change])
    records = encode_change("shop", commit, index, change, Table("t", {}, tuple(row)))
    assert len(records) == (2 if op is Op.DELETE else 1)
    found = decode_change("shop.t", 3, 0, *records[0])
    assert isinstance(found, ChangeRecord)
    assert typed(found.change.key) == typed(key)
    assert typed(found.change.after) == typed(change.after)
    assert typed(found.change.before) == typed(change.before)
    assert (found.shard, found.epoch, found.commit, found.index, found.key_columns) == (3, 2, number, index, tuple(row))
    for offset, each in enumerate(records):
        taken = table_record(TopicPartition("shop.t", 3), "t", Record(offset, 0, 0, *each, []))
        if isinstance(taken, arrivals.Tombstone):
            assert (taken.offset, typed(taken.key)) == (1, typed(key))
        else:
            rest = taken._replace(change=taken.change._replace(key=(), after=None))
            assert tuple(rest) == (0, 2, number, Change("t", op, (), None, None), sum(map(len, filter(None, each))))
            assert typed(taken.change.key) == typed(key)
            assert typed(taken.change.after) == typed(change.after)


JSON: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.one_of(
        st.lists(inner),
        st.dictionaries(
            st.sampled_from(["op", "before", "after", "source", "schema", "payload", "transaction", "type", "name", "c", "id"]), inner
        ),
    ),
    max_leaves=12,
)


@given(key=st.one_of(st.binary(), JSON), value=st.one_of(st.binary(), JSON))
def test_hostile_records_are_refused_with_their_place_or_read(key: Any, value: Any) -> None:
    import json

    written = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in (key, value)]
    with suppress(RecordError):
        decode_change("shop.t", 3, 9, *written)
    with suppress(RecordError):
        table_record(TopicPartition("shop.t", 3), "t", Record(9, 0, 0, written[0], written[1], []))


@given(key=JSON, value=JSON, op=st.sampled_from("crudtmx"), commit=st.integers(-1, 2), is_ours=st.booleans())
def test_a_replica_takes_of_any_record_what_the_whole_envelope_says(key: Any, value: Any, op: str, commit: int, is_ours: bool) -> None:
    """Or both refuse it."""
    import json

    source = {"changelog": "shop", "table": "t", "epoch": 1, "commit": commit} if is_ours else {"commit": commit}
    written = [json.dumps(each).encode() for each in (key, {"op": op, "after": value, "source": source})]
    taken: Any = None
    with suppress(RecordError):
        taken = table_record(TopicPartition("shop.t", 3), "t", Record(9, 0, 0, written[0], written[1], []))
    whole: Any = None
    with suppress(RecordError):
        whole = decode_change("shop.t", 3, 9, *written)
    if isinstance(whole, ChangeRecord) and whole.commit == 0:
        assert taken is None, "a change of no commit"
    elif isinstance(whole, ChangeRecord):
        assert typed(tuple(taken)) == typed((9, whole.epoch, whole.commit, whole.change._replace(before=None), sum(map(len, written))))
    else:
        assert taken is None
