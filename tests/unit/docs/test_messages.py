"""A message that a page quotes is one that we print: somebody searches for it at night."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from moldau.audit.verdicts import Verdict
from moldau.model.errors import ErrorCode
from support.pages import ROOT

PAGES = ("troubleshooting.md", "recovery.md")
FIRST_COLUMN = re.compile(r"^\| (.*?) \|", re.MULTILINE)
QUOTED = re.compile(r"`([^`]+)`")
OF_OTHERS = {"Connection refused", "_INVALID_DIFFERENT_RECORD", "BAD_MSG", "listening on", "moldau", "Host", "Origin", "with"} | {
    "does not support the new CONSUMER group protocol",
    "UnsupportedVersionException",
    "debug=cgrp",
    "ConsumerGroupHeartbeatRequest not supported by broker",
    "marking the coordinator (...) dead",
}
"""Of the system's, the clients' and HTTP's vocabulary."""
A_WORD_OF_OURS = re.compile(r"[\w.]+|moldau .*|--[\w-]+")
"""Settings, commands, options: other tests know them."""


@cache
def texts() -> str:
    """Every text in our modules, in one piece where it is put together; what is filled in is `...`. Between two of them is a NUL."""
    found = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(re.sub(r"%[-.\d]*[a-z]", "...", node.value))
    return "\0".join(found)


def is_ours(message: str) -> bool:
    """Whether each part of it stands in a text of ours: an event and its reason come from two modules."""
    pieces = [piece.strip() for piece in re.split(r"\.\.\.|: |; |, |\d+", message) if re.search(r"\w", piece)]
    return all(piece in texts() for piece in pieces)


@pytest.mark.parametrize("page", PAGES)
def test_messages_that_are_quoted_exist(page: str) -> None:
    quoted = [message for cell in FIRST_COLUMN.findall((ROOT / "docs" / page).read_text()) for message in QUOTED.findall(cell)]
    codes = {each.name for each in ErrorCode}
    verdicts = {each.value for each in Verdict}
    assert len(quoted) > 15
    assert [m for m in quoted if m not in codes | verdicts | OF_OTHERS and not A_WORD_OF_OURS.fullmatch(m) and not is_ours(m)] == []


def test_what_nobody_prints_is_found() -> None:
    assert is_ours("cannot connect to ...")
    assert not is_ours("cannot connect to the moon")


def test_error_codes_in_the_page_are_kafkas() -> None:
    page = Path(ROOT / "docs" / "troubleshooting.md").read_text()
    named = {
        name
        for name in QUOTED.findall(page)
        if re.fullmatch(r"[A-Z]+(_[A-Z]+)+", name) and not name.startswith(("MOLDAU", "PYSPARK", "BAD"))
    }
    assert named <= {each.name for each in ErrorCode}
