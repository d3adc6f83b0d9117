"""What holds for all tests: properties are judged by their outcome, not by how long a busy machine took over an example.

They draw the same examples each time, 40 of them where a test has no number of its own, so that a change is judged and not the luck of a
run; with MOLDAU_TORTURE=1 they draw fresh and more examples (`make properties`, part of `make torture`, prints the seed) and print how to
draw what failed again. Such tests have the mark `drawn`, wherever they stand. Those with the mark `long` are skipped without it.

A file is imported only if `-m` may select something in it, by the marks that it names.

With ``--dist loadfile`` one process of pytest-xdist runs all files of tests that share a Spark, and begins with them: they take longest.
Files whose programs start a Spark of their own come in the midst of the others, so that short files are left for the end, and both
processes end at the same time.

Each Spark that a test starts, itself or in a program, has an environment in which it starts soon.

And Ctrl-C means what it means at a terminal: a shell starts what it runs in the background with that signal ignored, and every process
that a test starts would inherit it.

And no thread of ours outlives the run: what a test has left at work behind it would meet the functions that later tests replace and count.
Nor does it outlive a test how its command has set up logging: later tests look at what is logged.

The modules and the thousands of collected tests stay until the end of the run, and so do the strategies and the compiled codecs that a file
of tests leaves: the garbage collector does not examine them, neither during collection nor later.
"""

import gc
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Generator, Iterator
from enum import IntEnum
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.mark.expression import Expression
from hypothesis import HealthCheck, is_hypothesis_test, settings

from support.quick_spark import spark_variables
from support.sizes import TORTURE, sized

settings.register_profile(
    "any machine",
    deadline=None,
    max_examples=sized(40, 400),
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize=not TORTURE,
)
settings.load_profile("any machine")

signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.update(spark_variables())

if TYPE_CHECKING:
    from support.s3 import S3Server

PROPERTIES = Path(__file__).parent / "property"
SYSTEM = Path(__file__).parent / "system"
THREADS_END_S = 10.0
OF_ALL = re.compile(r"^pytestmark = (.*(?:\n .*|\n\])*)", re.MULTILINE)
MARK = re.compile(r"\bmark\.(system|torture|long|spark|alone)\b")
_first_seen: dict[threading.Thread, str] = {}
"""Our threads, and the test during which each was seen first."""
_workers_say: list[str] = []
"""What workers of pytest-xdist report of their threads: neither their output nor their exit status reaches the run's."""


@pytest.fixture(scope="module")
def s3() -> "Iterator[S3Server]":
    """An S3 server, and the environment by which tables find it."""
    from support.s3 import S3Server

    with S3Server() as server, pytest.MonkeyPatch.context() as patched:
        for name, value in server.variables.items():
            patched.setenv(name, value)
        yield server


def _ours() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("moldau")]


class _Turn(IntEnum):
    """When a file's tests are run."""

    SHARED_SPARK = 0
    BEFORE = 1
    OWN_SPARK = 2
    AFTER = 3


@cache
def _turn(file: Path) -> _Turn:
    """By its text: the process that distributes tests knows their files and names alone."""
    text = file.read_text(encoding="utf-8")
    if "mark.spark" in text:
        return _Turn.SHARED_SPARK if "spark_session" in text else _Turn.OWN_SPARK
    return _Turn.AFTER if file.is_relative_to(SYSTEM) else _Turn.BEFORE


@cache
def _may_select(expression: str, of_all: frozenset[str], of_some: frozenset[str]) -> bool:
    """Whether a test may match that has all of the first marks, and perhaps some of the others."""
    compiled, more = Expression.compile(expression), sorted(of_some | {"drawn"})
    drawn = [of_all.union(each) for count in range(len(more) + 1) for each in combinations(more, count)]
    return any(_holds(compiled, marks) for marks in drawn)


def _holds(expression: Expression, marks: frozenset[str]) -> bool:
    def has(name: str, /, **_: object) -> bool:
        return name in marks

    return expression.evaluate(has)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    expression = config.option.markexpr
    if not expression or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text(encoding="utf-8")
    of_all = frozenset(name for found in OF_ALL.findall(text) for name in MARK.findall(found))
    return None if _may_select(expression, of_all, frozenset(MARK.findall(text))) else True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadFileScheduling

    if config.getoption("dist") != "loadfile":
        return None
    scheduling = LoadFileScheduling(config, log)
    file_of = scheduling._split_scope
    scheduling._split_scope = lambda nodeid: "spark" if _turn(config.rootpath / file_of(nodeid)) is _Turn.SHARED_SPARK else file_of(nodeid)
    return scheduling


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _turn(item.path))
    for item in items:
        if item.path.is_relative_to(PROPERTIES) or is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("drawn")
        if item.get_closest_marker("long") and not TORTURE:
            item.add_marker(pytest.mark.skip(reason="long: make torture"))


def _freeze() -> None:
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        _freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call() -> Generator[None]:
    root = logging.getLogger()
    level, handlers = root.level, [(each, each.filters[:]) for each in root.handlers]
    try:
        return (yield)
    finally:
        root.setLevel(level)
        root.handlers[:] = [each for each, _ in handlers]
        for each, filters in handlers:
            each.filters[:] = filters


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    for thread in _ours():
        _first_seen.setdefault(thread, item.nodeid)
    if nextitem is not None and nextitem.path != item.path:
        _freeze()


def _outlived() -> list[str]:
    """A line for each of our threads that has not ended; what was asked to end may need a moment."""
    end = time.monotonic() + THREADS_END_S
    for thread in _ours():
        thread.join(max(end - time.monotonic(), 0))
    return [f"thread {each.name!r} outlived its test; it came up in {_first_seen.get(each, 'no test')}" for each in _ours()]


def _sendable(value: Any) -> Any:
    """What tests print, log and compare, without the halves of surrogate pairs in it: workers of pytest-xdist cannot send these."""
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case dict():
            return {key: _sendable(each) for key, each in value.items()}
        case list() | tuple():
            return type(value)(_sendable(each) for each in value)
        case _:
            return value


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    return _sendable((yield))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker has ended, or died: then there is no output."""
    _workers_say.extend(getattr(node, "workeroutput", {}).get("outlived", []))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """All fixtures are closed by now."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["outlived"] = _outlived()
        return
    for line in _workers_say + _outlived():
        print(f"\n{line}")
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
