"""The coordination tree means the same whoever keeps it. A further keeper joins by a function in `KEEPERS`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from moldau.adapters.sqlite_coordination import MEMORY, SqliteCoordination
from moldau.model.errors import CoordinationError
from moldau.ports.coordination import (
    BadVersionError,
    Check,
    Coordination,
    Create,
    Delete,
    EventType,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionState,
    SetData,
    WatchEvent,
)


@dataclass
class Clock:
    now_ms: int = 1_700_000_000_000

    def time_ms(self) -> int:
        self.now_ms += 1
        return self.now_ms


@dataclass
class Events:
    """What watches saw, in order."""

    seen: list[WatchEvent] = field(default_factory=list)

    def __call__(self, event: WatchEvent) -> None:
        self.seen.append(event)

    def take(self) -> list[tuple[EventType, str]]:
        taken = [(event.type, event.path) for event in self.seen]
        self.seen.clear()
        return taken


def sqlite_file(directory: Path) -> Coordination:
    return SqliteCoordination(str(directory / "coordination.db"), Clock().time_ms)


def sqlite_memory(_directory: Path) -> Coordination:
    return SqliteCoordination(MEMORY, Clock().time_ms)


KEEPERS: list[Callable[[Path], Coordination]] = [sqlite_file, sqlite_memory]
"""Each opens a session with a tree that lives as long as the directory."""
LASTING: list[Callable[[Path], Coordination]] = [sqlite_file]
"""Those whose tree outlives a session."""


@pytest.fixture(params=KEEPERS, ids=lambda make: make.__name__)
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Coordination]:
    tree: Coordination = request.param(tmp_path)
    yield tree
    tree.close()


def test_a_node_holds_bytes_and_counts_its_writes(tree: Coordination) -> None:
    assert tree.create("/a", b"one") == "/a"
    data, stat = tree.get("/a")
    assert (data, stat.version, stat.ephemeral, stat.children) == (b"one", 0, False, 0)
    changed = tree.set("/a", b"\x00\xff")
    assert changed.version == 1
    assert changed.modified_ms > stat.modified_ms
    assert changed.created_ms == stat.created_ms
    assert tree.get("/a")[0] == b"\x00\xff"


def test_a_node_needs_its_parent_unless_parents_are_made_with_it(tree: Coordination) -> None:
    with pytest.raises(NoNodeError) as missing:
        tree.create("/a/b/c")
    assert missing.value.path == "/a/b"
    assert tree.create("/a/b/c", b"x", parents=True) == "/a/b/c"
    assert tree.get("/a/b")[0] == b""
    assert tree.create("/a/b/d", parents=True) == "/a/b/d"


def test_a_path_is_there_once(tree: Coordination) -> None:
    tree.create("/a")
    with pytest.raises(NodeExistsError) as exists:
        tree.create("/a")
    assert exists.value.path == "/a"
    with pytest.raises(NodeExistsError):
        tree.create("/a", parents=True)


@pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a//b"])
def test_a_malformed_path_is_our_own_bug(tree: Coordination, path: str) -> None:
    with pytest.raises(ValueError, match="not a path"):
        tree.create(path)


def test_what_is_not_there_is_said_by_name(tree: Coordination) -> None:
    for attempt in (lambda: tree.get("/no"), lambda: tree.set("/no", b""), lambda: tree.delete("/no"), lambda: tree.children("/no")):
        with pytest.raises(NoNodeError) as missing:
            attempt()
        assert missing.value.path == "/no"
    with pytest.raises(NoNodeError):
        tree.delete("/no", recursive=True)
    assert tree.exists("/no") is None


def test_a_write_is_refused_when_the_version_has_moved_on(tree: Coordination) -> None:
    tree.create("/a")
    tree.set("/a", b"1", 0)
    with pytest.raises(BadVersionError) as moved:
        tree.set("/a", b"2", 0)
    assert moved.value.path == "/a"
    with pytest.raises(BadVersionError):
        tree.delete("/a", 0)
    assert tree.get("/a")[0] == b"1"
    tree.delete("/a", 1)
    assert tree.exists("/a") is None


def test_children_are_names_in_order_and_only_the_direct_ones(tree: Coordination) -> None:
    for path in ("/b", "/b/2", "/b/10", "/b/2/deep", "/bb", "/a"):
        tree.create(path)
    assert tree.children("/b") == ["10", "2"]
    assert tree.children("/b/10") == []
    assert [name for name in tree.children("/") if name in ("a", "b", "bb")] == ["a", "b", "bb"]
    assert tree.get("/b")[1].children == 2


def test_a_node_with_children_goes_only_with_its_branch(tree: Coordination) -> None:
    for path in ("/a", "/a/b", "/a/b/c", "/a0", "/a-b", "/a/b!"):
        tree.create(path)
    with pytest.raises(NotEmptyError) as full:
        tree.delete("/a")
    assert full.value.path == "/a"
    tree.delete("/a", recursive=True)
    assert tree.exists("/a") is None
    assert tree.exists("/a/b/c") is None
    assert tree.exists("/a0") is not None
    assert tree.exists("/a-b") is not None


def test_sequential_nodes_are_numbered_upward_and_never_twice(tree: Coordination) -> None:
    tree.create("/q")
    first, second = (tree.create("/q/n_", b"", sequential=True) for _ in range(2))
    assert (first, second) == ("/q/n_0000000000", "/q/n_0000000001")
    tree.delete(second)
    third = tree.create("/q/n_", b"", sequential=True)
    assert third > second
    tree.multi([Create("/q/n_", sequential=True), Create("/q/n_", sequential=True)])
    assert len(tree.children("/q")) == 4
    with pytest.raises(NoNodeError):
        tree.create("/none/n_", sequential=True)


def test_an_ephemeral_node_has_no_children(tree: Coordination) -> None:
    tree.create("/e", ephemeral=True)
    assert tree.get("/e")[1].ephemeral
    with pytest.raises(CoordinationError):
        tree.create("/e/child")


def test_a_multi_happens_whole_and_its_steps_see_each_other(tree: Coordination) -> None:
    tree.create("/a", b"0")
    tree.multi(
        [
            Check("/a", 0),
            Create("/a/b"),
            Create("/a/b/c", b"x"),
            SetData("/a", b"1", 0),
            SetData("/a", b"2", 1),
            Delete("/a/b/c"),
            Delete("/a/b"),
        ]
    )
    assert tree.get("/a")[0] == b"2"
    assert tree.get("/a")[1].version == 2
    assert tree.children("/a") == []


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (Create("/a"), NodeExistsError),
        (Create("/none/x"), NoNodeError),
        (SetData("/a", b"", 7), BadVersionError),
        (SetData("/none", b""), NoNodeError),
        (Delete("/full"), NotEmptyError),
        (Delete("/a", 7), BadVersionError),
        (Check("/a", 7), BadVersionError),
        (Check("/none", 0), NoNodeError),
    ],
)
def test_a_multi_that_fails_at_its_last_step_leaves_nothing(
    tree: Coordination, last: Create | SetData | Delete | Check, error: type[CoordinationError]
) -> None:
    tree.create("/a", b"before")
    tree.create("/full/child", parents=True)
    events = Events()
    tree.get("/a", events)
    with pytest.raises(error):
        tree.multi([SetData("/a", b"after"), Create("/new"), Delete("/full/child"), Create("/full/child"), last])
    assert tree.get("/a")[0] == b"before"
    assert tree.get("/a")[1].version == 0
    assert tree.exists("/new") is None
    assert tree.children("/full") == ["child"]
    assert events.take() == []


def test_a_data_watch_sees_one_change_or_the_end(tree: Coordination) -> None:
    events = Events()
    tree.create("/a")
    tree.get("/a", events)
    tree.create("/a/child")
    assert events.take() == []
    tree.set("/a", b"1")
    tree.set("/a", b"2")
    assert events.take() == [(EventType.CHANGED, "/a")]
    tree.get("/a", events)
    tree.delete("/a", recursive=True)
    assert events.take() == [(EventType.DELETED, "/a")]


def test_a_watch_on_what_is_not_there_sees_it_come(tree: Coordination) -> None:
    events = Events()
    assert tree.exists("/a", events) is None
    tree.create("/a")
    assert events.take() == [(EventType.CREATED, "/a")]
    assert tree.exists("/a", events) is not None
    tree.set("/a", b"1")
    assert events.take() == [(EventType.CHANGED, "/a")]


def test_a_watch_that_could_not_be_set_is_not_set(tree: Coordination) -> None:
    events = Events()
    with pytest.raises(NoNodeError):
        tree.get("/a", events)
    with pytest.raises(NoNodeError):
        tree.children("/a", events)
    tree.create("/a/b", parents=True)
    assert events.take() == []


def test_a_child_watch_sees_a_child_come_or_go_and_the_end(tree: Coordination) -> None:
    events = Events()
    tree.create("/a")
    tree.children("/a", events)
    tree.set("/a", b"not for this watch")
    assert events.take() == []
    tree.create("/a/b")
    tree.create("/a/c")
    assert events.take() == [(EventType.CHILDREN, "/a")]
    tree.children("/a", events)
    tree.delete("/a/b")
    assert events.take() == [(EventType.CHILDREN, "/a")]
    tree.delete("/a/c")
    tree.children("/a", events)
    tree.delete("/a")
    assert events.take() == [(EventType.DELETED, "/a")]


def test_a_watch_reads_the_state_that_it_was_told_of(tree: Coordination) -> None:
    """Watches run after the whole multi, so a reader inside one never sees half of it."""
    seen: list[tuple[bytes, bytes]] = []
    tree.create("/a", b"0")
    tree.create("/b", b"0")
    tree.get("/a", lambda _event: seen.append((tree.get("/a")[0], tree.get("/b")[0])))
    tree.multi([SetData("/a", b"1"), SetData("/b", b"1")])
    assert seen == [(b"1", b"1")]


def test_a_closed_session_says_so_once_and_takes_no_more(tree: Coordination) -> None:
    states: list[SessionState] = []
    tree.on_session(states.append)
    tree.close()
    tree.close()
    assert states == [SessionState.EXPIRED]
    with pytest.raises(CoordinationError):
        tree.create("/a")
    with pytest.raises(CoordinationError):
        tree.get("/")


@pytest.mark.parametrize("open_tree", LASTING, ids=lambda make: make.__name__)
def test_the_next_session_finds_what_lasts_and_nothing_ephemeral(open_tree: Callable[[Path], Coordination], tmp_path: Path) -> None:
    first = open_tree(tmp_path)
    first.create("/ids")
    first.create("/ids/0", b"me", ephemeral=True)
    first.create("/q/n_", sequential=True, parents=True)
    first.close()
    second = open_tree(tmp_path)
    assert second.children("/ids") == []
    assert second.create("/q/n_", sequential=True) == "/q/n_0000000001"
    second.close()


def test_what_is_written_becomes_durable_and_the_tree_stays_writable(tree: Coordination) -> None:
    told: list[CoordinationError | None] = []
    tree.when_durable(told.append)
    assert told == [None], "nothing was written"
    tree.multi([Create("/a")])
    tree.when_durable(told.append)
    assert told == [None, None]
    assert tree.is_writable
    resumed: list[bool] = []
    tree.when_writable(lambda: resumed.append(True))
    assert resumed == [True]
