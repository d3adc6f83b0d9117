"""A message that a page quotes is one that we print: somebody searches for it at night."""

import re
from collections.abc import Iterator
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

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


def constants(code: CodeType) -> Iterator[str]:
    """The texts in compiled code, in that of its functions and classes, and in its tuples; pieces of a formatted text one by one."""
    left: list[object] = [code]
    while left:
        match left.pop():
            case str() as text:
                yield text
            case CodeType() as code:
                left += code.co_consts
            case tuple() | frozenset() as several:
                left += several


@cache
def texts() -> str:
    """Every text in our modules; what is filled in is `...`. Between two of them is a NUL. Modules are compiled once, as for an import."""
    found: list[str] = []
    for path in (ROOT / "src").rglob("*.py"):
        code = SourceFileLoader(path.stem, str(path)).get_code(path.stem)
        assert code is not None
        found += (re.sub(r"%[-.\d]*[a-z]", "...", text) for text in constants(code))
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


def test_what_is_not_printed_is_found() -> None:
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
