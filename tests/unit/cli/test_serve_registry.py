"""With a registry beside it a broker is announced when both take requests; until then its log says that it takes them."""

import gc
import logging
from collections.abc import Callable
from typing import Any

import pytest

from moldau.cli import serve


class _Registry:
    """Starts when it is let."""

    bootstrap = ""
    announce: Callable[[], object] = staticmethod(lambda: None)

    def start(self, bootstrap: str, announce: Callable[[], object]) -> None:
        self.bootstrap, self.announce = bootstrap, announce


def test_the_log_says_that_the_broker_takes_requests_while_its_registry_starts(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Claim: a registry that waits for its topic hides nothing; a parent process still gets the broker's line when both take requests."""
    caplog.set_level(logging.INFO)
    registry: Any = _Registry()
    try:
        serve._start_beside(registry, [("localhost", 9092), ("::", 9093)], "")
    finally:
        gc.unfreeze()
    assert registry.bootstrap == "localhost:9092"
    assert caplog.messages == ["broker takes requests, its schema registry is starting: addresses=localhost:9092,[::]:9093"]
    assert capsys.readouterr().out == ""
    registry.announce()
    assert capsys.readouterr().out.splitlines() == ["listening on localhost:9092", "listening on [::]:9093"]
