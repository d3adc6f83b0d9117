"""The metadata store is read as it was written, or refused by name: whatever byte of its files is changed, and wherever they are cut.

A sample of the bytes; all of them, and all bits, with MOLDAU_TORTURE=1.
"""

import logging
import re
import shutil
from pathlib import Path
from random import Random

import pytest

from moldau.model.errors import CoordinationError
from moldau.ports.coordination import Create
from support.sizes import sized
from support.trees import AskedTree

FLIPS = sized(60, 4000)
CUTS = sized(12, 400)


def now_ms() -> int:
    return 1_700_000_000_000


def content(tree: AskedTree, path: str = "/") -> dict[str, tuple[bytes, int]]:
    data, stat = tree.get(path)
    found = {path: (data, stat.version)}
    for name in tree.children(path):
        found |= content(tree, f"{path.rstrip('/')}/{name}")
    return found


class Store:
    """A store's files, to be damaged again and again. `states` are its contents after each transaction, the last one first."""

    def __init__(self, folder: Path, *, crashed: bool) -> None:
        self.path = folder / "store.db"
        source = folder / "source.db"
        tree = AskedTree(str(source), now_ms)
        self.states: list[dict[str, tuple[bytes, int]]] = []
        tree.create("/topics")
        for number in range(12):
            tree.multi([Create(f"/topics/t{number}", b"%d" % number * 90), Create(f"/topics/t{number}/state", b"{}")])
            self.states.insert(0, content(tree))
        if not crashed:
            tree.close()
        self.files = {suffix: Path(f"{source}{suffix}").read_bytes() for suffix in ("", "-wal") if Path(f"{source}{suffix}").exists()}
        if crashed:
            tree.close()

    def opened(self, damaged: dict[str, bytes]) -> dict[str, tuple[bytes, int]] | str:
        """The content, or the error's text."""
        for suffix in ("", "-wal", "-journal", "-shm"):
            Path(f"{self.path}{suffix}").unlink(missing_ok=True)
        for suffix, data in (self.files | damaged).items():
            Path(f"{self.path}{suffix}").write_bytes(data)
        try:
            tree = AskedTree(str(self.path), now_ms)
        except CoordinationError as error:
            return str(error)
        try:
            return content(tree)
        finally:
            tree.close()


@pytest.fixture(params=[False, True], ids=["stopped", "crashed"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(tmp_path, crashed=request.param)


def flipped(data: bytes, place: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[place] ^= 1 << bit
    return bytes(changed)


def judge(store: Store, found: dict[str, tuple[bytes, int]] | str, said: str, what: str) -> None:
    if isinstance(found, str):
        assert re.search(r"store\.db(-wal)?: ", found), what
        return
    assert found in store.states[:2], what
    assert found == store.states[0] or "transaction dropped" in said, what


def test_the_store_is_read_as_it_was(store: Store) -> None:
    assert store.opened({}) == store.states[0]


def test_no_flipped_bit_changes_what_is_read(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """Of the write-ahead log the last transaction may go, with a line: nobody can tell it from one that a power cut interrupted."""
    random = Random(0)
    for suffix, data in store.files.items():
        places = [(place, bit) for place in range(len(data)) for bit in range(8)]
        for place, bit in random.sample(places, min(FLIPS, len(places))):
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                found = store.opened({suffix: flipped(data, place, bit)})
            judge(store, found, caplog.text, f"file{suffix}, byte {place}, bit {bit}")


def test_a_file_that_was_cut_or_filled_is_refused(store: Store) -> None:
    random = Random(1)
    for suffix, data in store.files.items():
        if suffix == "-wal":
            continue
        for place in [*random.sample(range(1, len(data)), CUTS), *range(0, len(data), 4096)][1:]:
            found = store.opened({suffix: data[:place]})
            assert isinstance(found, str) or (found == store.states[0] and "-wal" in store.files), place  # that may have every page
        for junk in (bytes(len(data)), random.randbytes(len(data))):
            found = store.opened({suffix: junk})
            assert isinstance(found, str) or (found == store.states[0] and "-wal" in store.files)


def test_a_write_ahead_log_of_other_bytes_is_refused(store: Store) -> None:
    log = store.files.get("-wal", b"")
    for junk in (bytes(max(len(log), 5000)), Random(2).randbytes(max(len(log), 5000))):
        found = store.opened({"-wal": junk})
        assert isinstance(found, str)
        assert "store.db-wal: damaged" in found


def test_a_file_of_an_older_backup_is_whole(store: Store, tmp_path: Path) -> None:
    """A log of another generation has other salts, and is not looked at for transactions."""
    shutil.copy(tmp_path / "source.db", tmp_path / "copy.db")
    tree = AskedTree(str(tmp_path / "copy.db"), now_ms)
    assert content(tree)
    tree.close()
