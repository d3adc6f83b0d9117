"""The machine of a follower's fetches against a model of its leader, at random: whatever is lost, refused, late or followed again, what is
applied begins where the log ends, a leader is never asked by an offset that is not in the log, and in the end the follower has everything.
"""

from collections import deque
from random import Random

import pytest

from moldau.fetching.events import (
    Apply,
    Failed,
    FetcherEffect,
    FetcherEvent,
    Follow,
    LogEnd,
    Moved,
    PartitionAnswered,
    RequestEnded,
    RequestFailed,
    ResponseArrived,
    SendFetch,
    SessionLost,
    TimePassed,
    Unfollow,
    WakeAt,
)
from moldau.fetching.fetcher import OUT_MAX, Fetcher
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from support.sizes import sized

TOPIC_ID = b"t" * 16
COUNT = 4
STEPS = 400
SEEDS = sized(60, 3000)
Answer = tuple[int, dict[int, tuple[int, int, ErrorCode]]]
"""Session id; per partition where its records begin and end, and the error."""


class Leader:
    """Answers requests one after the other, with sessions that it may forget."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.ends = [0] * COUNT
        self.session_id = 0
        self.epoch = 0
        self.session: dict[int, int] = {}
        self.next_id = 0

    def answer(self, fetch: SendFetch) -> Answer | None:
        """None: the session is not known, or not at this epoch."""
        wanted = {each.partition: each.log.end_offset for each in fetch.partitions}
        if fetch.epoch == 0:
            self.session = wanted
            self.next_id += 1
            self.session_id, self.epoch = (self.next_id if self.random.random() < 0.8 else 0), 1
        elif (fetch.session_id, fetch.epoch) != (self.session_id, self.epoch):
            return None
        else:
            self.epoch += 1
            self.session.update(wanted)
            for _, index in fetch.forgotten:
                self.session.pop(index, None)
        answers = {}
        for index, offset in self.session.items():
            is_bad = self.random.random() < 0.05
            end = offset if is_bad else min(self.ends[index], offset + self.random.randrange(1, 4))
            if end > offset or is_bad or fetch.epoch == 0:
                answers[index] = offset, end, ErrorCode.NOT_LEADER_OR_FOLLOWER if is_bad else ErrorCode.NONE
        return self.session_id, answers


class World:
    """A follower of some partitions, the requests on their way to the leader, and the answers on their way back, in order."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.leader = Leader(self.random)
        self.fetcher = Fetcher(1.0)
        self.now_s = 0.0
        self.logs = [0] * COUNT
        self.terms: dict[int, int] = {}
        self.sent: deque[SendFetch] = deque()
        self.back: deque[tuple[int, Answer | None]] = deque()
        self.applying: list[tuple[int, list[tuple[int, tuple[int, int, ErrorCode]]]]] = []
        self.lossy = True

    def step(self, event: FetcherEvent, records: tuple[int, int] | None = None) -> None:
        for effect in self.fetcher.step(event, self.now_s):
            self.carry_out(effect, records)

    def carry_out(self, effect: FetcherEffect, records: tuple[int, int] | None) -> None:
        match effect:
            case SendFetch():
                for each in effect.partitions:
                    assert each.log.end_offset == self.logs[each.partition], "a leader takes it for what is in the log"
                    assert each.leader_epoch == self.terms[each.partition]
                self.sent.append(effect)
                assert len(self.sent) + len(self.back) <= OUT_MAX
            case Apply(where):
                assert records is not None
                start, end = records
                assert start == self.logs[where.partition], "neither a gap nor a record twice"
                if self.lossy and self.random.random() < 0.05:
                    self.step(Failed(where))
                else:
                    self.logs[where.partition] = end
                    self.step(Moved(where, self.log(where.partition)))
            case WakeAt():
                pass  # time passes anyway
            case _:
                raise AssertionError(effect)

    def log(self, index: int) -> LogEnd:
        return LogEnd(self.logs[index], 1 if self.logs[index] else -1, 0)

    def follow(self, index: int) -> None:
        self.terms[index] = self.terms.get(index, 0) + 1
        self.step(Follow(TopicPartition("t", index), TOPIC_ID, self.terms[index], self.log(index)))

    def arrive(self) -> None:
        """The oldest answer comes; it is applied partition by partition, in turns with another one."""
        if not self.back:
            return
        number, answer = self.back.popleft()
        if answer is None:
            self.step(SessionLost(number))
            return
        session_id, answers = answer
        is_large = self.random.random() < 0.5
        filled = tuple((TOPIC_ID, index) for index, (start, end, _) in answers.items() if end > start) if is_large else ()
        self.applying.append((number, list(answers.items())))
        self.step(ResponseArrived(number, session_id, filled))

    def apply(self) -> None:
        if not self.applying:
            return
        number, left = chosen = self.random.choice(self.applying)
        if left:
            index, (start, end, error) = left.pop(0)
            self.step(PartitionAnswered(number, TOPIC_ID, index, error, end, 0, None), (start, end))
        else:
            self.applying.remove(chosen)
            self.step(RequestEnded(number))

    def lose_connection(self) -> None:
        """All that is out fails; what has come is applied."""
        numbers = [number for number, _ in self.back] + [each.number for each in self.sent]
        self.sent.clear()
        self.back.clear()
        for number in numbers:
            self.step(RequestFailed(number))

    def deliver(self) -> None:
        if self.sent:
            fetch = self.sent.popleft()
            self.back.append((fetch.number, self.leader.answer(fetch)))

    def pass_time(self) -> None:
        self.now_s += 0.3
        self.step(TimePassed())

    def turn(self) -> None:
        index, kind = self.random.randrange(COUNT), self.random.random()
        if kind < 0.2:
            self.leader.ends[index] += self.random.randrange(1, 5)
        elif kind < 0.4:
            self.deliver()
        elif kind < 0.6:
            self.arrive()
        elif kind < 0.85:
            self.apply()
        elif kind < 0.9:
            self.pass_time()
        elif kind < 0.93:
            self.follow(index)
        elif kind < 0.95 and index in self.terms:
            self.step(Unfollow(TopicPartition("t", index)))
        elif kind < 0.97:
            self.leader.epoch += 7  # it has lost the session
        elif kind < 0.98:
            self.lose_connection()


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_at_random(first: int) -> None:
    for seed in range(first, first + 20):
        world = World(seed)
        for _ in range(STEPS):
            world.turn()
        world.lossy = False
        for index in range(COUNT):
            world.follow(index)
        for _ in range(STEPS):
            world.deliver()
            world.arrive()
            world.apply()
            world.pass_time()
        assert world.logs == world.leader.ends, f"seed {seed}"
