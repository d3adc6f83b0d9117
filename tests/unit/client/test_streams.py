"""Streams wait and never end, keep the order of partitions, and commit only what was finished, whatever comes and goes (P 3.1, B2, B4)."""

import contextlib
import logging
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.client import stream_feeder
from moldau.client.failures import ClientError
from moldau.client.stream_queues import MESSAGES_MAX
from moldau.client.streams import MessageStream, MessageStreams
from moldau.model.identity import TopicPartition
from support.late_answers import LateAnswer
from support.paper import wait_until
from support.sizes import sized
from support.stream_sources import LIMIT_S, FakeSource

if TYPE_CHECKING:
    from moldau.client.message import ConsumedMessage

P0, P1, P2, P3 = (TopicPartition("t", number) for number in range(4))


@contextmanager
def streams_of(
    source: FakeSource, topics: dict[str, int] | None = None, *, patience_s: float = 300.0, revoke_wait_s: float = LIMIT_S
) -> Iterator[MessageStreams]:
    streams = MessageStreams(topics or {"t": 1}, source, patience_s=patience_s, revoke_wait_s=revoke_wait_s)
    with streams:
        yield streams


def take(stream: MessageStream, count: int) -> list[tuple[int, int]]:
    """The next messages: partition and offset."""
    found = []
    for _ in range(count):
        message = stream.poll(LIMIT_S)
        assert message is not None
        found.append((message.partition, message.offset))
    return found


def test_partitions_are_shared_out_among_the_streams_of_their_topic() -> None:
    source = FakeSource(dict.fromkeys([P0, P1, P2, P3, TopicPartition("u", 0)], 1))
    with streams_of(source, {"t": 2, "u": 1}) as streams:
        source.give(P0, P1, P2)
        assert [stream.partitions() for stream in streams["t"]] == [[P0, P2], [P1]]
        source.give(P3, TopicPartition("u", 0))
        assert [stream.partitions() for stream in streams] == [[P0, P2], [P1, P3], [("u", 0)]]
        source.take_away(P0, P2)
        source.give(P0)
        assert [stream.partitions() for stream in streams["t"]] == [[P0], [P1, P3]]
        assert len(streams) == 3
        assert streams[2].topic == "u"
        assert streams.assignment() == {P0, P1, P3, ("u", 0)}


def test_a_source_may_choose_the_stream_of_a_partition() -> None:
    source = FakeSource(dict.fromkeys([P0, P1, P2, P3], 1))
    source.streams = {P0: 1, P1: 1, P2: 0}
    with streams_of(source, {"t": 2}) as streams:
        source.give(P0, P1, P2)
        assert [stream.partitions() for stream in streams] == [[P2], [P0, P1]]
        source.give(P3)
        assert [stream.partitions() for stream in streams] == [[P2, P3], [P0, P1]]


def test_a_stream_waits_for_more_and_ends_only_when_closed() -> None:
    source = FakeSource({P0: 2})
    seen: list[int] = []
    with streams_of(source) as streams:
        source.give(P0)
        reader = threading.Thread(target=lambda: seen.extend(message.offset for message in streams[0]))
        reader.start()
        wait_until(lambda: len(seen) == 2, "the messages that are there")
        source.lengths[P0] = 5
        wait_until(lambda: streams._queues.finished() == {P0: 5}, "those that came later")
        assert reader.is_alive()
    reader.join(LIMIT_S)
    assert not reader.is_alive()
    assert seen == [0, 1, 2, 3, 4]
    assert source.committed == {P0: 5}, "the last one was finished by asking for more"
    assert source.calls[-1] == "close"


def test_a_message_in_work_is_not_committed() -> None:
    source = FakeSource({P0: 10})
    with streams_of(source) as streams:
        source.give(P0)
        assert take(streams[0], 3) == [(0, 0), (0, 1), (0, 2)]
    assert source.committed == {P0: 2}


def test_unless_it_is_said_to_be_finished() -> None:
    source = FakeSource({P0: 10})
    with streams_of(source) as streams:
        source.give(P0)
        take(streams[0], 3)
        streams[0].finish()
    assert source.committed == {P0: 3}


def test_an_exception_in_the_loop_finishes_nothing() -> None:
    source = FakeSource({P0: 10})
    with contextlib.suppress(ZeroDivisionError), streams_of(source) as streams:
        source.give(P0)
        for message in streams[0]:
            1 // (4 - message.offset)
    assert source.committed == {P0: 4}


def test_commit_now() -> None:
    source = FakeSource({P0: 10}, commits_by_itself=False)
    with streams_of(source) as streams:
        source.give(P0)
        take(streams[0], 3)
        streams.commit()
        assert source.committed == {P0: 2}
        take(streams[0], 3)
    assert source.committed == {P0: 2}, "and never by itself, if that is off"


def test_an_answer_that_comes_just_after_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the feeder has done in that moment is done, and no TimeoutError."""
    monkeypatch.setattr(stream_feeder, "Future", LateAnswer)
    source = FakeSource({P0: 10}, commits_by_itself=False)
    with streams_of(source) as streams:
        source.give(P0)
        take(streams[0], 3)
        streams.commit()
        assert source.committed == {P0: 2}


def test_a_revoked_partition_is_committed_as_far_as_it_is_finished_and_the_rest_dropped() -> None:
    source = FakeSource({P0: 10, P1: 10})
    with streams_of(source, {"t": 2}) as streams:
        source.give(P0, P1)
        take(streams[0], 3)
        streams[0].finish()
        take(streams[1], 2)
        streams[1].finish()
        source.take_away(P0)
        assert source.committed == {P0: 3}
        assert streams[0].poll(0.01) is None, "what had not been handed out went with it"
        source.give(P0)
        assert take(streams[0], 1) == [(0, 3)]


def test_what_is_worked_on_while_its_partition_goes_comes_again() -> None:
    """Who holds a message for too long finishes it in vain: its partition is somebody else's."""
    source = FakeSource({P0: 10})
    with streams_of(source, revoke_wait_s=0.01) as streams:
        source.give(P0)
        take(streams[0], 3)
        source.take_away(P0)
        assert source.committed == {P0: 2}
        streams[0].finish()
        source.give(P0)
        assert take(streams[0], 1) == [(0, 2)]


def test_a_partition_that_goes_waits_a_moment_for_what_is_worked_on() -> None:
    source = FakeSource({P0: 10})
    with streams_of(source) as streams:
        source.give(P0)
        take(streams[0], 3)
        going = threading.Thread(target=lambda: source.take_away(P0))
        going.start()
        wait_until(lambda: not streams[0]._lane.waiting, "the partition is on its way")
        streams[0].finish()
        going.join(LIMIT_S)
        assert source.committed == {P0: 3}


def test_of_a_lost_partition_nothing_is_committed() -> None:
    source = FakeSource({P0: 10})
    with streams_of(source) as streams:
        source.give(P0)
        take(streams[0], 3)
        source.take_away(P0, lost=True)
        assert streams[0].poll(0.01) is None
    assert source.committed == {}


def test_rewinding() -> None:
    """A consumer may rewind to an old offset (mission A12)."""
    source = FakeSource({P0: 10})
    with streams_of(source) as streams:
        source.give(P0)
        take(streams[0], 5)
        streams.seek(P0, 2)
        assert take(streams[0], 2) == [(0, 2), (0, 3)], "and what was worked on does not count"
        streams.seek_to_beginning()
        assert take(streams[0], 1) == [(0, 0)]
        streams.seek_to_time(7)
        assert take(streams[0], 1) == [(0, 7)]
        streams.seek_to_time(70)
        assert streams[0].poll(0.01) is None
        streams.seek_to_end()
        source.lengths[P0] = 11
        assert take(streams[0], 1) == [(0, 10)]
        streams[0].finish()
        with pytest.raises(ValueError, match="partition t-1 is not assigned to these streams"):
            streams.seek(P1, 0)
    assert source.committed == {P0: 11}


def test_where_a_seek_went_the_group_continues() -> None:
    """As with Kafka's clients, though nothing was read there yet."""
    source = FakeSource({P0: 10})
    with streams_of(source) as streams:
        source.give(P0)
        take(streams[0], 5)
        streams.seek(P0, 2)
        with pytest.raises(ValueError, match="partition t-0: an offset is 0 or more, not -5"):
            streams.seek(P0, -5)
    assert source.committed == {P0: 2}


def test_what_fails_at_the_end_is_raised_by_close_or_logged_where_an_exception_leaves(caplog: pytest.LogCaptureFixture) -> None:
    class BrokenError(ClientError):
        def __init__(self) -> None:
            Exception.__init__(self, "group g, partition t-0 at offset 5: away")

    class Source(FakeSource):
        def close(self) -> None:
            super().close()
            raise BrokenError

    with pytest.raises(BrokenError), streams_of(Source({P0: 1})) as streams:
        pass
    streams.close()
    with pytest.raises(ZeroDivisionError), streams_of(Source({P0: 1})):
        1 // len(())
    assert "streams: while closing: group g, partition t-0 at offset 5: away" in caplog.text


def test_a_slow_stream_is_not_drowned_and_does_not_hold_up_the_others() -> None:
    source = FakeSource({P0: 5 * MESSAGES_MAX, P1: 5 * MESSAGES_MAX})
    with streams_of(source, {"t": 2}) as streams:
        source.give(P0, P1)
        assert take(streams[1], 5 * MESSAGES_MAX) == [(1, offset) for offset in range(5 * MESSAGES_MAX)]
        assert len(streams[0]._lane.waiting) < 2 * MESSAGES_MAX
        assert "pause" in source.calls
        assert take(streams[0], 5 * MESSAGES_MAX) == [(0, offset) for offset in range(5 * MESSAGES_MAX)]
        assert "resume" in source.calls


@pytest.mark.parametrize(("shortest", "longest"), [(0.2, 2.0), (0.02, 0.1)])
def test_a_fast_stream_is_hardly_ever_paused_for_one_that_just_has_nothing(
    shortest: float, longest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause has the source fetch again what it has already; one that brought the other stream nothing is thought over for longer.

    Also when the other one has waited for longer than the longest time of all.
    """
    monkeypatch.setattr("moldau.client.stream_feeder._STARVING_S_MIN", shortest)
    monkeypatch.setattr("moldau.client.stream_feeder._STARVING_S_MAX", longest)
    source = FakeSource({P0: 20 * MESSAGES_MAX, P1: 0})
    with streams_of(source, {"t": 2}) as streams:
        begun = time.monotonic()
        source.give(P0, P1)
        waiting = threading.Thread(target=lambda: list(streams[1]))
        waiting.start()
        assert take(streams[0], 20 * MESSAGES_MAX) == [(0, offset) for offset in range(20 * MESSAGES_MAX)]
        most = 5 + (time.monotonic() - begun) / longest  # thought over for twice as long each time, up to the longest: on any machine
        assert source.calls.count("pause") <= most
    waiting.join(LIMIT_S)


def test_a_stream_that_is_not_polled_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    source = FakeSource({P0: 5})
    with caplog.at_level(logging.WARNING), streams_of(source, patience_s=0.0):
        source.give(P0)
        wait_until(lambda: "stream 0 of topic t: no message taken" in caplog.text, "the warning")
        assert "messages of t-0 wait" in caplog.text


def test_an_error_of_the_source_reaches_every_stream() -> None:
    class BrokenError(ClientError):
        def __init__(self) -> None:
            Exception.__init__(self, "group g: fenced")

    source = FakeSource({P0: 5})
    with streams_of(source, {"t": 2}) as streams:
        source.give(P0)
        take(streams[0], 2)
        source.error = BrokenError()
        wait_until(lambda: streams._feeder.ended, "the end")
        for stream in streams:
            with pytest.raises(BrokenError):
                list(stream)
        with pytest.raises(RuntimeError, match="the streams are closed"):
            streams.commit()
    assert source.committed == {P0: 2}, "what was finished before is not lost by it"


def test_closing_from_within_a_loop() -> None:
    source = FakeSource({P0: 5})
    streams = MessageStreams({"t": 1}, source)
    source.give(P0)
    seen = []
    for message in streams[0]:
        seen.append(message.offset)
        if message.offset == 2:
            streams.close()
    assert seen == [0, 1, 2]
    assert source.committed == {P0: 2}


@settings(max_examples=sized(25))
@given(st.integers(0, 2**32 - 1))
def test_at_least_once_in_order_whatever_comes_and_goes(seed: int) -> None:
    """Partitions come, go and are lost at random while messages are read and finished.

    What is committed was finished; reading begins again at what is committed; in between nothing is left out.
    """
    chance = random.Random(seed)
    partitions = [P0, P1, P2]
    source = FakeSource(dict.fromkeys(partitions, 60))
    finished: set[tuple[int, int]] = set()
    with streams_of(source, {"t": 2}, revoke_wait_s=0.0) as streams:
        source.give(*partitions)
        expected = dict.fromkeys(partitions, 0)
        held: dict[int, ConsumedMessage] = {}
        for _ in range(80):
            number = chance.randrange(2)
            what = chance.random()
            if what < 0.8:
                message = streams[number].poll(0.01 if streams[number].partitions() else 0)
                if number in held:
                    finished.add((held[number].partition, held.pop(number).offset))
                if message is not None:
                    where = TopicPartition(message.topic, message.partition)
                    assert message.offset == expected[where]
                    expected[where] = message.offset + 1
                    held[number] = message
            elif what < 0.9:
                where = chance.choice(partitions)
                source.take_away(where, lost=chance.random() < 0.3)
                source.give(where)
                expected[where] = source.committed.get(where, 0)
                held = {each: message for each, message in held.items() if (message.topic, message.partition) != where}
            else:
                streams.commit()
            for where, offset in source.committed.items():
                assert {(where.partition, before) for before in range(offset)} <= finished
