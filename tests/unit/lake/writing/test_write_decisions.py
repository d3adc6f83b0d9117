"""A decision is read as it was written; whose transaction an id is can be told from the id alone."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.lake.writing.decisions import Decision, DecisionError, DecisionState, TaskTransaction, WrittenRange, driver_id, ids_of, task_id
from moldau.lake.writing.transactions import ProducerIdentity
from support.sizes import sized

numbers = st.integers(0, 2**31)
decisions = st.builds(
    Decision,
    query=st.text(),
    run=st.text(),
    batch=numbers,
    state=st.sampled_from(DecisionState),
    transactions=st.lists(
        st.builds(
            TaskTransaction,
            owner=st.builds(ProducerIdentity, st.text(), numbers, numbers),
            written=st.lists(st.builds(WrittenRange, st.text(), numbers, numbers, numbers)).map(tuple),
        )
    ).map(tuple),
    time_ms=numbers,
)


@given(decisions)
@settings(max_examples=sized(20))
def test_what_is_written_is_read(decision: Decision) -> None:
    assert Decision.from_bytes(decision.to_bytes()) == decision


def test_the_bytes_are_json_with_sorted_names() -> None:
    """They are read by later versions: a change here needs a new version number."""
    decision = Decision(
        "q",
        "r",
        7,
        DecisionState.DECIDED,
        (TaskTransaction(ProducerIdentity("moldau-spark-q-0-0", 12, 3), (WrittenRange("t", 1, 2, 3),)),),
        5,
    )
    text = decision.to_bytes().decode()
    assert text == (
        '{"batch":7,"query":"q","run":"r","state":"decided","time_ms":5,"transactions":'
        '[{"epoch":3,"id":"moldau-spark-q-0-0","producer_id":12,"written":[["t",1,2,3]]}],"version":1}'
    )
    assert list(json.loads(text)) == sorted(json.loads(text))


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b"\xff", b'{"version":2}', b'{"version":1,"transactions":[{}]}'])
def test_what_is_no_decision_is_refused(value: bytes) -> None:
    with pytest.raises(DecisionError):
        Decision.from_bytes(value)


@given(st.text(alphabet="a-0"), st.text(alphabet="a-0"), st.integers(0, 12), st.integers(0, 12))
def test_ids_belong_to_one_query(query: str, other: str, task: int, attempt: int) -> None:
    """Also where a name has dashes and digits at its end, and never to a driver."""
    ours = task_id(query, task, attempt)
    assert ids_of(query, [ours, driver_id(query), driver_id(other)]) == [ours]
    assert ids_of(other, [ours]) == ([ours] if other == query else [])
