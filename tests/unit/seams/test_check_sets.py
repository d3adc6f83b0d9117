"""The lint finds each way in which the order of a set shows, and nothing else."""

import subprocess
import sys
from pathlib import Path

from support.pages import ROOT

PLANTED = """
import logging
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Set
from typing import NamedTuple, TypeVar

S = TypeVar("S", bound=set[str])

def names() -> frozenset[str]:
    return frozenset({"a", "b"})

def first(items: Iterable[str]) -> str:
    return next(iter(items))

def count(items: Set[str]) -> int:
    return len(items)

def walk(found: set[str], maybe: set[str] | None, table: dict[str, int], listed: list[str], abstract: Set[str]) -> Iterator[str]:
    for _ in found: ...  # refused
    for _ in {"a", "b"}: ...  # refused
    for _ in found | names(): ...  # refused
    for _ in table.keys() & listed: ...  # refused
    for _ in abstract: ...  # refused
    for _ in (maybe or ()): ...  # refused
    for _ in table: ...
    for _ in table.keys(): ...
    for _ in sorted(found): ...
    for _, _ in enumerate(found): ...  # refused
    yield from names()  # refused
    yield from sorted(names())
    yield found.pop()  # refused
    yield listed.pop()

def comprehend(found: set[str], groups: list[set[str]]) -> object:
    a = [name for name in found]  # refused
    b = {name: 1 for name in found}  # refused
    c = {name.upper() for name in found}
    d = {name for group in groups for name in map(str.upper, group)}
    e = [name for group in groups for name in group]  # refused
    f = sorted(name for name in found if name)
    g = any(name in found for name in found)
    h = first(name for name in found)  # refused
    i = max((len(name) for name in found), default=0), sum(map(len, found)), sorted(n for n in filter(None, found))
    return a, b, c, d, e, f, g, h, i

def unpack(found: set[str], table: dict[str, int]) -> object:
    a = [*found]  # refused
    b = (*found, "z")  # refused
    c = {*found, "z"}
    (d,) = found  # refused
    print(*found)  # refused
    e = max(*found)
    return a, b, c, d, e

def give(found: set[str], table: dict[str, int], listed: list[str], queue: deque[str]) -> object:
    a = list(found)  # refused
    b = tuple(found)  # refused
    c = ",".join(found)  # refused
    d = next(iter(found))  # refused
    e = first(found)  # refused
    f = first(items=found)  # refused
    g = dict.fromkeys(found)  # refused
    h = Counter(found)  # refused
    listed.extend(found)  # refused
    queue.extend(found)  # refused
    i = list(map(str.upper, found))  # refused
    j = count(found), len(found), set(found), frozenset(found), bool(found), "a" in found
    k = min(found), min(found, key=len)  # refused
    m = sorted(found, key=len)  # refused
    found.update(found)
    n = found.union(found, names()).issuperset(found)
    table.update((name, 1) for name in found)  # refused
    return a, b, c, d, e, f, g, h, i, j, k, m, n

def tell(found: set[str]) -> str:
    logging.info("found %s", found)  # refused
    logging.info("found %d", len(found))
    a = str(found)  # refused
    b = repr(found)  # refused
    return f"{a} {b} {found}"  # refused

def bounded(found: S) -> None:
    for _ in found: ...  # refused

def hide(found: set[str], other: list[str]) -> Iterable[str]:
    a: Iterable[str] = found  # refused
    b: set[str] = found
    if b:
        return found if a else other  # refused
    return names()  # refused

class Kept:
    def __init__(self) -> None:
        self._kept: set[int] = set()

    def walk(self) -> None:
        for _ in self._kept: ...  # refused
        (lambda: [n for n in self._kept])()  # refused
"""


def lint(path: Path) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "tools/check_sets.py", str(path)], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_what_is_planted_is_found_and_nothing_else(tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text(PLANTED)
    code, said = lint(planted)
    found = [int(line.split(":")[1]) for line in said.splitlines() if line.startswith(f"{planted}:")]
    wanted = [number for number, line in enumerate(PLANTED.splitlines(), 1) if line.endswith("# refused")]
    assert sorted(found) == wanted, said
    assert code == 1


def test_code_that_mypy_refuses_is_not_called_clean(tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text("for name in unknown: ...\n")
    code, said = lint(planted)
    assert code == 2
    assert 'Name "unknown" is not defined' in said
