"""The Makefile finds the tests of a mark by the text of their files, and leaves `tests/system` out of the quick suite."""

import ast
from pathlib import Path

import pytest

from support.pages import ROOT

TESTS = ROOT / "tests"
BY_TEXT = ("mark.system", "mark.torture", "mark.spark", "mark.alone")


def module_marks(path: Path) -> list[str]:
    """Names of the marks that all tests of a file have."""
    return [
        node.attr
        for statement in ast.parse(path.read_text()).body
        if isinstance(statement, ast.Assign) and "pytestmark" in map(ast.unparse, statement.targets)
        for node in ast.walk(statement.value)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pytest.mark"
    ]


@pytest.mark.parametrize("path", sorted((TESTS / "system").glob("test_*.py")), ids=lambda path: path.stem)
def test_all_tests_of_the_system_have_its_mark(path: Path) -> None:
    assert "system" in module_marks(path)


def test_no_test_has_a_mark_from_elsewhere_than_its_file() -> None:
    others = [path for path in TESTS.rglob("*.py") if not path.name.startswith("test_")]
    assert len(others) > 100
    assert [str(path) for path in others if any(mark in path.read_text() for mark in BY_TEXT)] == []
