"""Below the adapters nothing asks the operating system: time, chance, files, sockets and threads come in through ports.

So one seed decides all that a simulated cluster does. The client's room stands beside the broker's and is left out: it is a library for
programs with threads and sockets of their own.
"""

import ast
from collections.abc import Iterator

import pytest

from support.pages import ROOT

ROOMS = ("model", "ports", "protocol", "log", "cluster", "broker")
FORBIDDEN = {"asyncio", "os", "random", "secrets", "select", "selectors", "signal", "socket", "subprocess", "tempfile", "threading", "time"}
FORBIDDEN_NAMES = {"uuid1", "uuid4", "urandom", "now", "utcnow", "today"}
"""Of `uuid`, `os` and `datetime`."""
EXCEPTIONS = {
    ("log/checkpoints.py", "threading"): "a lock around a write that two threads may make; one thread never waits for it",
    (
        "broker/handlers/produce/walks.py",
        "threading",
    ): "a lock taken once, without waiting: who begins a walk, a thread of `Background` or the drop",
}


def findings(code: str) -> Iterator[str]:
    """What a module imports or names that asks the operating system."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.partition(".")[0] for alias in names if alias.name.partition(".")[0] in FORBIDDEN)
            case ast.ImportFrom(module=str(module), names=names):
                if module.partition(".")[0] in FORBIDDEN:
                    yield module.partition(".")[0]
                yield from (alias.name for alias in names if alias.name in FORBIDDEN_NAMES)
            case ast.Attribute(attr=name) if name in FORBIDDEN_NAMES:
                yield name
            case ast.Call(func=ast.Name(id="__import__" | "import_module"), args=[ast.Constant(value=str(module))]):
                if module.partition(".")[0] in FORBIDDEN:
                    yield module.partition(".")[0]


def test_only_what_is_excused_passes_the_ports_by() -> None:
    source = ROOT / "src" / "moldau"
    paths = [path for room in ROOMS for path in sorted((source / room).rglob("*.py"))]
    found = {(str(path.relative_to(source)), name) for path in paths for name in findings(path.read_text())}
    assert len(paths) > 200
    assert found == EXCEPTIONS.keys()


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import time", ["time"]),
        ("import os.path as p", ["os"]),
        ("def late() -> None:\n    from random import Random", ["random"]),
        ("from uuid import UUID, uuid4", ["uuid4"]),
        ("import uuid\nuuid.uuid4()", ["uuid4"]),
        ("from datetime import datetime\ndatetime.now()", ["now"]),
        ("__import__('socket')", ["socket"]),
        ("from uuid import UUID\nimport timeit\nfrom moldau.log import timestamps", []),
    ],
)
def test_planted_violations(code: str, found: list[str]) -> None:
    assert list(findings(code)) == found
