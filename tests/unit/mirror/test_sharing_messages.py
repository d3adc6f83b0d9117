"""What members send and are assigned: the same after a round trip, small, and what cannot be read is a ValueError."""

import json
import zlib
from contextlib import suppress
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from moldau.mirror.sharing.messages import TEXT_BYTES_MAX, Assignment, MemberState
from moldau.mirror.sharing.shares import NOTHING, SHARES_MAX, Ownership, Share, shares_from_json, shares_to_json

NAMES = st.sampled_from(["a", "paris", "clicks.v1", "ü\0"])
SHARES = st.sets(st.builds(Share, NAMES, NAMES, st.integers(0, 20))).map(lambda found: tuple(sorted(found)))
TEXTS = st.sets(NAMES).map(lambda found: tuple(sorted(found)))
RATES = st.integers(0, 99).map(lambda digits: digits * 1e6)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["instance", "owned", "assigned", "rates", "generation", "instances", "load"]), inner, max_size=4),
    ),
)


def packed(**values: object) -> bytes:
    return zlib.compress(json.dumps(values).encode())


@given(NAMES, SHARES, st.integers(-1, 2**31 - 1), TEXTS, st.data())
def test_a_state_is_the_same_after_a_round_trip(
    instance: str, shares: tuple[Share, ...], generation_id: int, instances: tuple[str, ...], data: st.DataObject
) -> None:
    measured = [share for share in shares if data.draw(st.booleans())]
    state = MemberState(instance, Ownership(shares, generation_id), {share: data.draw(RATES) for share in measured}, instances)
    assert MemberState.decode(state.encode()) == state


@given(SHARES, TEXTS, TEXTS, RATES, RATES, st.booleans())
def test_an_assignment_is_the_same_after_a_round_trip(
    shares: tuple[Share, ...], departed: tuple[str, ...], instances: tuple[str, ...], load: float, mean: float, must_rejoin: bool
) -> None:
    assignment = Assignment(shares, departed, instances, load, mean, must_rejoin)
    assert Assignment.decode(assignment.encode()) == assignment


def test_partitions_are_ranges_and_rates_have_two_digits() -> None:
    shares = (*(Share("paris", "clicks", number) for number in (*range(10), 12)), Share("rome", "clicks", 3))
    assert shares_to_json(shares) == {"paris": {"clicks": [0, 9, 12, 12]}, "rome": {"clicks": [3, 3]}}
    rates = {shares[0]: 123456.7, shares[1]: 0.0}
    assert MemberState.decode(MemberState("1", Ownership(shares), rates).encode()).rates == {shares[0]: 120000.0, shares[1]: 0.0}


def test_ten_thousand_partitions_are_small() -> None:
    random = Random(1)
    for topics in (10, 10_000):
        shares = tuple(
            sorted(
                Share("paris", f"{Random(topic).randbytes(20).hex()}.v1", number)
                for topic in range(topics)
                for number in range(10_000 // topics)
            )
        )
        state = MemberState("1", Ownership(shares, 7), {share: random.uniform(0, 1e8) for share in shares})
        assert len(state.encode()) < 700_000


@given(st.binary(max_size=40))
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    for decode in (MemberState.decode, Assignment.decode):
        with pytest.raises(ValueError, match=r"."):
            decode(data)


@given(JSON)
def test_whatever_the_json_is_it_is_read_or_refused(value: object) -> None:
    for decode in (MemberState.decode, Assignment.decode):
        with suppress(ValueError):
            decode(zlib.compress(json.dumps(value).encode()))


@pytest.mark.parametrize(
    "owned",
    [
        [],
        {"a": []},
        {"a": {"t": [0]}},
        {"a": {"t": [3, 1]}},
        {"a": {"t": [-1, 1]}},
        {"a": {"t": ["0", "1"]}},
        {"a": {"t": [0, SHARES_MAX]}},
        {"a": {"t": [0, 10**30]}},
        {"a": {"t": [0.5, 1.5]}},
    ],
)
def test_what_are_no_shares_is_refused(owned: object) -> None:
    with pytest.raises(ValueError, match="not"):
        shares_from_json(owned)
    with pytest.raises(ValueError, match="not"):
        MemberState.decode(packed(instance="1", owned=owned))


def test_a_few_bytes_that_are_much_text_are_refused() -> None:
    with pytest.raises(ValueError, match="more than"):
        MemberState.decode(zlib.compress(b" " * (TEXT_BYTES_MAX + 1)))
    with pytest.raises(ValueError, match="recursion"):
        MemberState.decode(zlib.compress(b"[" * 100_000))


def test_of_a_later_version_what_is_known_is_read() -> None:
    said = packed(version=9, instance="1", owned={"a": {"t": [0, 0]}}, generation=3, rates=["much"], rack="r", more=[1])
    assert MemberState.decode(said) == MemberState("1", Ownership((Share("a", "t", 0),), 3))
    assert MemberState.decode(packed(version=9, instance="1")) == MemberState("1", NOTHING)
    assert Assignment.decode(packed(version=9, load="much")) == Assignment()
