"""Members of a group come, go, crash, lose their connections and their sessions, while they share partitions out among themselves.

At each step a partition is read only by the member that owns it, or by one that cannot know that its session ended, for as long as the
rule allows; it is read from what is committed, and nothing is committed that was not read. In the end all partitions are owned as Algorithm
1 has it, and all messages were read.
"""

from random import Random

import pytest

from moldau.model.identity import TopicPartition
from moldau.ports.coordination import SessionState
from support.coordinated_members import SESSION_S, TIMING, Member, TreeOfTopics, expected_ranges
from support.sizes import sized

SEEDS = sized(25, 3000)
STEPS = 40
MEMBERS_MAX = 20
PARTITIONS_MAX = 100
DOUBT_S = SESSION_S * (1 / 3 - 1 / 10) + 1e-6


class World:
    """A topic, the members of a group, and what happens to them."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.partitions = random.choice([1, 7, random.randint(1, PARTITIONS_MAX), PARTITIONS_MAX])
        self.members_max = random.choice([2, 5, random.randint(1, MEMBERS_MAX)])
        self.latency_s = random.choice([0.0, 0.0, 0.02, 0.3])
        self.topics = TreeOfTopics({"t": self.partitions})
        self.clock = self.topics.clock
        self.members: list[Member] = []
        self.gone: list[Member] = []
        self.made = 0
        self.cut_at: dict[str, float] = {}
        """Since when members have no connection."""
        self.read_to: dict[TopicPartition, int] = dict.fromkeys(self.topics.logs, 0)
        """Up to where all messages were read, by whichever member."""
        self.committed: dict[TopicPartition, int] = dict.fromkeys(self.topics.logs, 0)
        self.duplicates = 0

    def step(self) -> None:
        actions = [self.join, self.join, self.leave, self.crash, self.cut, self.expire, self.lose_answer, self.mend, self.mend]
        self.random.choice([*actions, self.append, self.grow])()
        for _ in range(self.random.choice([1, 3, 10])):
            self.clock.advance(self.random.choice([0.0, 0.01, 0.1, 0.4]))
            self.read()
            self.check()

    # What happens

    def join(self) -> None:
        if len(self.members) < self.members_max:
            self.made += 1
            streams = {"t": self.random.choice([1, 1, 2, 5])}
            latency_s = self.latency_s * self.random.random()
            self.members.append(CheckedMember(self, f"c{self.random.randrange(10)}-{self.made}", streams, latency_s))

    def leave(self) -> None:
        if self.members:
            member = self.members.pop(self.random.randrange(len(self.members)))
            self.gone.append(member)
            member.close()

    def crash(self) -> None:
        """The process is killed: it does nothing more, its session ends after a while."""
        if self.members:
            member = self.members.pop(self.random.randrange(len(self.members)))
            member.at.clear()
            member.session.suspend()
            member.session.expire()

    def cut(self) -> None:
        if member := self.connected():
            member.session.suspend()
            self.cut_at[member.name] = self.clock.monotonic()

    def lose_answer(self) -> None:
        """One of its next requests is carried out, and its answer is lost."""
        if member := self.connected():
            member.session.lose_answer(self.random.randint(1, 8))

    def expire(self) -> None:
        """The tree ends a session, after it has heard nothing for its timeout; a client has noticed a third of that before."""
        if member := self.connected():
            member.session.suspend()
            self.cut_at[member.name] = self.clock.monotonic()
            self.clock.advance(SESSION_S / 3)
            member.session.expire()

    def mend(self) -> None:
        away = [member for member in self.members if member.session.state is SessionState.SUSPENDED]
        if away:
            member = self.random.choice(away)
            self.cut_at.pop(member.name, None)
            member.session.resume()

    def connected(self) -> Member | None:
        here = [member for member in self.members if member.session.state is SessionState.CONNECTED]
        return self.random.choice(here) if here else None

    def append(self) -> None:
        for where in self.topics.logs:
            self.topics.logs[where] += self.random.choice([0, 1, 5])

    def grow(self) -> None:
        """The topic gets more partitions, at times."""
        if self.partitions < PARTITIONS_MAX and self.random.random() < 0.3:
            self.partitions += self.random.randint(1, 3)
            self.topics.add_partitions("t", self.partitions)
            for where in self.topics.logs:
                self.read_to.setdefault(where, 0)
                self.committed.setdefault(where, 0)

    # Reading

    def read(self) -> None:
        for member in self.members:
            for where in list(member.at):
                if self.random.random() < 0.3:
                    self.note(where, member.take(where, self.random.choice([1, 3, 10])))
            if self.random.random() < 0.7:
                member.store()

    def note(self, where: TopicPartition, offsets: range) -> None:
        assert offsets.start <= self.read_to[where], f"{where}: messages from {self.read_to[where]} to {offsets.start} were skipped"
        self.duplicates += max(0, min(self.read_to[where], offsets.stop) - offsets.start)
        self.read_to[where] = max(self.read_to[where], offsets.stop)

    # What holds

    def check(self) -> None:
        readers: dict[TopicPartition, list[str]] = {}
        for member in self.members:
            if member.session.state is SessionState.SUSPENDED:  # also after a lost answer
                since = self.cut_at.setdefault(member.name, self.clock.monotonic())
                assert not member.at or self.clock.monotonic() - since <= DOUBT_S, f"{member.name} reads in doubt"
                continue
            self.cut_at.pop(member.name, None)
            for where in member.at:
                readers.setdefault(where, []).append(member.name)
                assert self.topics.owner(where) == (member.member.owned[where], member.session.session_id)
        assert [names for names in readers.values() if len(names) > 1] == []
        for where, before in self.committed.items():
            now = self.topics.committed(where) or 0
            assert before <= now <= self.read_to[where], f"{where}: {before} was committed, then {now}; read to {self.read_to[where]}"
            self.committed[where] = now

    def heal(self) -> None:
        """All come back, and nothing happens any more."""
        if not self.members:
            self.join()
        for member in self.members:
            member.session.lose_answer(0)
            member.session.resume()
            self.cut_at.pop(member.name, None)
        for _ in range(60):
            self.clock.advance(0.5)
            for member in self.members:
                for where in list(member.at):
                    self.note(where, member.take(where, 1000))
                member.store()
            self.check()

    def check_healed(self) -> None:
        expected = expected_ranges({member.name: member.streams for member in self.members}, {"t": self.partitions})
        assert {where: thread for member in self.members for where, thread in member.member.owned.items()} == expected
        assert {where: owner[0] for where in self.topics.logs if (owner := self.topics.owner(where))} == expected
        assert self.read_to == self.topics.logs
        assert self.committed == self.topics.logs
        assert all(member.is_closed for member in self.gone)


class CheckedMember(Member):
    """Begins each partition where the group has committed, exactly: no other member commits it any more."""

    def __init__(self, world: World, consumer: str, streams: dict[str, int], latency_s: float) -> None:
        self.whole = world
        super().__init__(world.topics, consumer, streams, latency_s=latency_s, timing=TIMING._replace(backoff_s=0.3 + latency_s))

    def start(self, offsets: object) -> None:
        super().start(offsets)  # type: ignore[arg-type]
        for where, offset in self.starts[-len(self.at) :] if self.at else ():
            assert offset == self.whole.topics.committed(where), f"{self.name} begins {where} at {offset}"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_partitions_are_read_by_their_owners_and_nothing_is_skipped(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.heal()
    world.check_healed()
