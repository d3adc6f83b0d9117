"""Records reach a log through the pipeline of appends only: nothing else names what appends."""

import ast
from collections.abc import Iterator

import pytest

from support.pages import ROOT

APPENDS = {"append_as_leader", "append_marker_as_leader", "append_as_follower"}
ROOMS = ("log/", "broker/replicas/")


def findings(code: str) -> Iterator[str]:
    """What a module names that appends to a log, as an attribute, a variable, an import or a text."""
    if not any(name in code for name in APPENDS):
        return
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.alias(name=name) | ast.Constant(value=str(name)) if name in APPENDS:
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name in APPENDS:
                yield name


def test_only_replicas_append_to_logs() -> None:
    source = ROOT / "src" / "moldau"
    found = [
        (str(path.relative_to(source)), name)
        for path in sorted(source.rglob("*.py"))
        if not str(path.relative_to(source)).startswith(ROOMS)
        for name in findings(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize("room", ROOMS)
def test_the_rooms_that_may_do(room: str) -> None:
    found = {name for path in (ROOT / "src" / "moldau" / room).rglob("*.py") for name in findings(path.read_text())}
    assert "append_as_leader" in found


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("log.append_as_leader(batch, header, 0)", ["append_as_leader"]),
        ("append = log.append_marker_as_leader", ["append_marker_as_leader"]),
        ("getattr(log, 'append_as_follower')(records)", ["append_as_follower"]),
        ("def append_as_follower() -> None: ...", ["append_as_follower"]),
        ("from planted import append_as_leader as stage", ["append_as_leader"]),
        ('"""Only `append_as_leader` appends."""\nlog.append(batch)\nslots = "_append_as_leader"', []),
    ],
)
def test_planted_violations(code: str, found: list[str]) -> None:
    assert list(findings(code)) == found
