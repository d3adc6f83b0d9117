"""A command's loop ends with everything on it: a connection that is still being made does not outlive it."""

import gc
import logging
import re
import socket
import sys
from collections.abc import Iterator

import pytest

from moldau.mirror.catalog import Catalog
from moldau.mirror.operator import Operator, operate
from moldau.mirror.plan.file import parse_plan
from moldau.mirror.plan.values import MirrorPlan
from moldau.model.errors import WorldError


@pytest.fixture
def plan() -> Iterator[MirrorPlan]:
    """Of a mirror whose target takes connections, and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        text = f"""
            name = "m"
            mode = "copy"
            source.bootstrap.servers = "127.0.0.1:{port}"
            target.bootstrap.servers = "127.0.0.1:{port}"
            topics.include = ["orders"]
        """
        yield parse_plan(text, "m.toml")


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_command_ends_while_it_connects_without_a_trace(
    plan: MirrorPlan, loop: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Claim: the target's silence is one error; no task is left that ends on a closed loop, which would print a traceback."""
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    monkeypatch.setenv("MOLDAU_LOOP", loop)
    unraisable: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: unraisable.append(f"{raised.exc_value!r} in {raised.object!r}"))
    caplog.set_level(logging.WARNING)

    async def look(operator: Operator) -> Catalog:
        return await operator.target_catalog()

    with pytest.raises(WorldError, match=re.escape("does not answer within 0.05 s")):
        operate(plan, "me", 0.05, look)
    gc.collect()
    assert unraisable == []
    assert caplog.messages == []
