"""Several sessions on one file are to their clients what sessions of the tree in memory are: same answers, same events, same order."""

import os
import tempfile
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.adapters.sqlite_shared import SharedSqliteCoordination
from moldau.ports.coordination import (
    Check,
    Children,
    Coordination,
    Create,
    Created,
    Data,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Multi,
    MultiDone,
    NodeError,
    NodeStat,
    SessionEvent,
    SetData,
    WatchEvent,
)
from moldau.testing.clock import FakeClock
from moldau.testing.coordination import FakeTree
from support.readers import PolledReaders
from support.sizes import sized

SESSIONS = 3
TIMEOUT_S = 10.0

paths = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/b/x"])
versions = st.sampled_from([-1, -1, 0, 1])
writes = st.one_of(
    st.builds(Create, paths, st.binary(max_size=2), st.booleans()),
    st.builds(SetData, paths, st.binary(max_size=2), versions),
    st.builds(Delete, paths, versions),
)
reads = st.one_of(
    st.builds(GetData, paths, st.booleans()), st.builds(Exists, paths, st.booleans()), st.builds(GetChildren, paths, st.booleans())
)
multis = st.lists(st.one_of(writes, st.builds(Check, paths, versions)), min_size=1, max_size=4).map(lambda each: Multi(tuple(each)))
steps = st.tuples(st.integers(0, SESSIONS - 1), st.one_of(writes, reads, reads, multis, st.sampled_from(["wake", "reopen", "expire"])))


class Pair:
    """A client of the file and one of the tree in memory, and what each has been called with."""

    def __init__(self, path: str, tree: FakeTree) -> None:
        self.path, self.tree = path, tree
        self.streams: list[list[Any]] = [[], []]
        self.open()

    def open(self) -> None:
        self.clock, self.readers = FakeClock(), PolledReaders()
        self.file = SharedSqliteCoordination(self.path, self.clock, self.readers, int(TIMEOUT_S * 1000))
        self.fake = self.tree.session()
        self.sessions: list[Coordination] = [self.file, self.fake]
        for place, session in enumerate(self.sessions):
            session.listen(self.streams[place].append)

    def wake(self) -> None:
        while self.readers.run():
            pass


def plain(outcome: Any, owners: dict[int, int]) -> Any:
    """Without what differs: ids of creations, times, the ids of sessions."""
    match outcome:
        case NodeStat():
            return outcome._replace(created_id=0, created_ms=0, modified_ms=0, owner=owners.get(outcome.owner, 0))
        case Data():
            return outcome._replace(stat=plain(outcome.stat, owners))
        case Children():
            return (list(outcome.names), plain(outcome.stat, owners))
        case Created():
            return (outcome.path, plain(outcome.stat, owners))
        case MultiDone():
            return [plain(each, owners) for each in outcome.results]
        case NodeError():
            return (type(outcome), outcome.path, outcome.index)
        case SessionEvent():
            return (outcome.state, owners.get(outcome.session_id))
        case Exception():
            return type(outcome)
        case _:
            return outcome


@settings(max_examples=sized(25, 600))
@given(st.lists(steps, max_size=40))
def test_sessions_on_a_file_mean_what_sessions_of_the_tree_in_memory_mean(drawn: list[tuple[int, Any]]) -> None:
    tree = FakeTree(FakeClock())
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as directory:
        pairs = [Pair(f"{directory}/tree.db", tree) for _ in range(SESSIONS)]
        owners: list[dict[int, int]] = [{}, {}]

        def note_owners() -> None:
            for place, pair in enumerate(pairs):
                for known, session in zip(owners, pair.sessions, strict=True):
                    known[session.session_id] = place + 1

        def compare() -> None:
            for pair in pairs:
                pair.wake()
            for place, pair in enumerate(pairs):
                found, wanted = ([plain(each, known) for each in stream] for known, stream in zip(owners, pair.streams, strict=True))
                assert found == wanted, place

        note_owners()
        for place, step in drawn:
            pair = pairs[place]
            if step == "wake":
                pair.wake()
            elif step == "reopen":
                pair.wake()
                for session, stream in zip(pair.sessions, pair.streams, strict=True):
                    seen = len(stream)
                    session.close()
                    stream[seen:] = [each for each in stream[seen:] if not isinstance(each, WatchEvent)]  # a keeper need not call for these
                pair.open()
            elif step == "expire":  # the others see it end before it learns that
                pair.wake()
                for _ in range(12):
                    for other in pairs:
                        if other is not pair:
                            other.clock.advance(TIMEOUT_S / 10)
                pair.clock.advance_within(2 * TIMEOUT_S)
                pair.fake.expire()
                pair.fake.resume()
                pair.clock.advance(TIMEOUT_S / 10)
            else:
                for session, stream in zip(pair.sessions, pair.streams, strict=True):
                    session.submit(step, stream.append)
            note_owners()
        compare()
        for pair in pairs:
            pair.file.close()
