"""Only what is finished may be committed, and a rewind brings back exactly what is not settled (mission B4, faults T6 and T7)."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.client.message import ConsumedMessage
from moldau.client.reader import ReadProgress
from moldau.model.identity import TopicPartition
from support.sizes import sized

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def messages(*places: tuple[int, int]) -> Sequence[ConsumedMessage]:
    """Messages of topic t, each a partition and an offset."""
    return [ConsumedMessage(b"", topic="t", partition=partition, offset=offset) for partition, offset in places]


def test_a_message_is_finished_when_the_next_one_is_handed_out() -> None:
    progress = ReadProgress()
    progress.hand_out(messages((0, 5)))
    assert progress.positions() == {T0: 6}
    assert progress.unsettled() == {}, "it is being worked on"
    progress.hand_out(messages((1, 0)))
    assert progress.unsettled() == {T0: 6}
    progress.finish()
    assert progress.unsettled() == {T0: 6, T1: 1}


def test_what_is_settled_is_not_committed_again() -> None:
    progress = ReadProgress()
    progress.hand_out(messages((0, 5), (0, 6), (1, 3)))
    progress.finish()
    progress.settle({T0: 7})
    assert progress.unsettled() == {T1: 4}
    assert progress.positions() == {T0: 7, T1: 4}


def test_a_rewind_goes_to_what_is_settled_or_to_the_first_message() -> None:
    progress = ReadProgress()
    progress.hand_out(messages((0, 5), (1, 3)))
    progress.finish()
    progress.settle({T0: 6})
    progress.hand_out(messages((0, 6), (0, 7), (1, 4)))
    assert progress.rewind() == {T0: 6, T1: 3}
    assert progress.rewind() == {}, "once is enough"
    progress.hand_out(messages((0, 6)))
    assert progress.positions() == {T0: 7, T1: 3}


def test_messages_that_another_member_gets_again_are_not_forgotten_before_the_transaction_has_ended() -> None:
    """T7: what was made of them must not be committed, since this member can no longer commit their offsets."""
    progress = ReadProgress()
    progress.hand_out(messages((0, 5), (1, 3)))
    progress.finish()
    progress.settle({T0: 6})
    progress.take_away([T0])
    assert progress.taken_away == set(), "committed before it went"
    progress.take_away([T1])
    assert (progress.taken_away, progress.positions()) == ({T1}, {})
    assert progress.rewind() == {}
    assert progress.taken_away == set(), "the transaction was aborted"
    progress.hand_out(messages((0, 6)))
    progress.take_away([T0])
    assert progress.taken_away == {T0}, "the last one handed out counts too"


def test_after_a_seek_a_rewind_goes_where_the_seek_went() -> None:
    progress = ReadProgress()
    progress.hand_out(messages((0, 5)))
    progress.finish()
    progress.settle({T0: 6})
    progress.moved(T0, 2)
    assert (progress.positions(), progress.unsettled()) == ({T0: 2}, {T0: 2}), "and so does the next reader"
    progress.settle({T0: 2})
    assert progress.unsettled() == {}
    progress.hand_out(messages((0, 2), (0, 3)))
    assert progress.rewind() == {T0: 2}


def test_of_partitions_that_are_gone_nothing_counts() -> None:
    progress = ReadProgress()
    progress.hand_out(messages((0, 5), (1, 3)))
    progress.forget([T0])
    progress.finish()
    assert progress.positions() == progress.unsettled() == {T1: 4}


@settings(max_examples=sized(60))
@given(st.lists(st.tuples(st.sampled_from(["take", "commit", "rewind", "seek"]), st.integers(0, 1), st.integers(1, 3)), max_size=25))
def test_a_reader_that_stops_anywhere_has_finished_everything_before_its_commit(steps: list[tuple[str, int, int]]) -> None:
    """The next offset of each partition against a list that is read by hand."""
    progress = ReadProgress()
    at, settled, finished = {T0: 10, T1: 10}, {T0: 10, T1: 10}, {T0: 10, T1: 10}
    for step, number, count in steps:
        where = (T0, T1)[number]
        match step:
            case "take":
                finished = dict(at)
                progress.hand_out(messages(*((number, at[where] + n) for n in range(count))))
                at[where] += count
            case "commit":
                progress.finish()
                finished = dict(at)
                committed = progress.unsettled()
                progress.settle(committed)
                settled.update(committed)
                assert all(offset == at[each] for each, offset in committed.items())
            case "rewind":
                at.update(progress.rewind())
                finished = dict(at)
                assert at == settled
            case _:
                progress.moved(where, count)
                at[where] = settled[where] = finished[where] = count
        assert {where: offset for where, offset in progress.unsettled().items() if offset > finished[where]} == {}
        assert progress.positions() == {where: at[where] for where in progress.positions()}
