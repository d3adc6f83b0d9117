"""A cluster for commands that go on for long: that no broker answers is told soon, not only when an attempt is given up.

An attempt may take as long as ``--timeout`` says, and more are made after it. All of that is one outage, and one line.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from moldau.cli.output import say
from moldau.client.cluster import Cluster
from moldau.client.retry import Retry
from moldau.model.errors import MoldauError

TELL_AFTER_S = 2.0


class Outage:
    """Brokers that are away: told once, until it is `over`."""

    def __init__(self) -> None:
        self._told = False

    def tell(self, trouble: object) -> None:
        """Say it, if that was not done yet. Any thread may call it."""
        if not self._told:
            self._told = True
            say(f"{trouble}; trying again", err=True)

    def over(self) -> None:
        """They have done what was asked; the next trouble is another outage."""
        self._told = False


class PatientCluster(Cluster):
    """Calls `tell` from another thread, with what is known of the trouble, when something asked is not done after `after_s`."""

    def __init__(self, bootstrap: str, *, tell: Callable[[object], None], after_s: float = TELL_AFTER_S, **options: Any) -> None:
        super().__init__(bootstrap, **options)
        self._tell = tell
        self._after_s = after_s
        self._silence = f"{bootstrap}: no answer for {after_s:g} s"
        self._trouble: object = self._silence

    def anywhere(self, *arguments: Any, **options: Any) -> Any:
        """As of any cluster."""
        with self._watched():
            return super().anywhere(*arguments, **options)

    def at_leaders(self, *arguments: Any, **options: Any) -> Any:
        """As of any cluster."""
        with self._watched():
            return super().at_leaders(*arguments, **options)

    def retry(self) -> Retry:
        """One that remembers why."""
        return _Remembering(self.timeout_s, self._remember, sleep=self._sleep)

    def _remember(self, trouble: MoldauError) -> None:
        self._trouble = trouble

    @contextmanager
    def _watched(self) -> Iterator[None]:
        self._trouble = self._silence
        timer = threading.Timer(self._after_s, lambda: self._tell(self._trouble))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


class _Remembering(Retry):
    def __init__(self, timeout_s: float, remember: Callable[[MoldauError], None], **options: Any) -> None:
        super().__init__(timeout_s, **options)
        self._remember = remember

    def pause(self, trouble: MoldauError) -> None:
        self._remember(trouble)
        super().pause(trouble)
