"""Waiting for a cluster: the first contact of a command with a broker, and brokers that stop answering a command that runs for long.

A broker that was only just started listens a moment later, so a command tries until its time is over, as Kafka's tools do. After a
second it prints what it waits for; the last line has for how long it did. A host name that does not resolve is not retried.

An attempt may take as long as ``--timeout``, and more are made after it. All of that is one outage: a line when it begins and one when
it is over. A command that works at intervals asks in between whether a broker answers.
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from moldau.cli.output import say
from moldau.client.cluster import Cluster
from moldau.client.errors import Retry, may_pass
from moldau.model.errors import MoldauError, PeerError, WorldError

CONTACT_AFTER_S = 1.0


def wait_for_broker(cluster: "Cluster", monotonic: Callable[[], float] = time.monotonic) -> None:
    """Return as soon as a broker has answered. click.ClickException when none has within the cluster's `timeout_s`."""
    retry, begun, reported = cluster.retry(), monotonic(), False
    while True:
        try:
            cluster.metadata([])
            return
        except WorldError as error:
            if _is_unknown_host(error):
                raise
            trouble = error
        try:
            retry.pause(trouble)
        except WorldError as last:
            raise click.ClickException(f"{last} (tried for {cluster.timeout_s:g} s)") from last
        if not reported and monotonic() - begun >= CONTACT_AFTER_S:
            click.echo(f"{trouble}; trying for {cluster.timeout_s:g} s", err=True)
            reported = True


def _is_unknown_host(error: WorldError) -> bool:
    cause = error.__cause__
    return isinstance(cause, socket.gaierror) and cause.errno != socket.EAI_AGAIN


OUTAGE_AFTER_S = 2.0
ASK_EVERY_S = 0.5
"""While nothing else is to be done: together with `OUTAGE_AFTER_S` an outage is reported within three seconds."""


class ClusterOutage:
    """An outage of the brokers: reported once, until it is `over`, which is reported too."""

    def __init__(self) -> None:
        self._reported = False

    @property
    def under_way(self) -> bool:
        """Whether it was reported, and is not over."""
        return self._reported

    def report(self, trouble: object) -> None:
        """Report it, unless that was done. Any thread may call it."""
        if not self._reported:
            self._reported = True
            say(f"{trouble}; trying again", err=True)

    def over(self) -> None:
        """They have done what was asked; the next trouble is another outage."""
        if self._reported:
            self._reported = False
            say("the brokers answer again", err=True)

    @contextmanager
    def waited_for(self) -> Iterator[None]:
        """Trouble in this block that may pass is reported and ends the block; other trouble is raised."""
        try:
            yield
        except (WorldError, PeerError) as error:
            if not may_pass(error):
                raise
            self.report(error)

    def rest(
        self,
        seconds: float,
        *clusters: Cluster,
        sleep: Callable[[float], object] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Do nothing for so long, but notice brokers that go away. During an outage return as soon as one answers."""
        until = monotonic() + seconds
        while until - monotonic() > ASK_EVERY_S:
            sleep(ASK_EVERY_S)
            with self.waited_for():
                for cluster in clusters:
                    cluster.metadata([])
                if self.under_way:
                    return
        sleep(max(0.0, until - monotonic()))


class PatientCluster(Cluster):
    """Calls `report` from another thread, with what is known of the trouble, when something asked is not done after `after_s`."""

    def __init__(self, bootstrap: str, *, report: Callable[[object], None], after_s: float = OUTAGE_AFTER_S, **options: Any) -> None:
        super().__init__(bootstrap, **options)
        self._report = report
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
        return _ObservedRetry(self.timeout_s, self._remember, sleep=self._sleep)

    def _remember(self, trouble: MoldauError) -> None:
        self._trouble = trouble

    @contextmanager
    def _watched(self) -> Iterator[None]:
        self._trouble = self._silence
        timer = threading.Timer(self._after_s, lambda: self._report(self._trouble))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


class _ObservedRetry(Retry):
    def __init__(self, timeout_s: float, remember: Callable[[MoldauError], None], **options: Any) -> None:
        super().__init__(timeout_s, **options)
        self._remember = remember

    def pause(self, trouble: MoldauError) -> None:
        self._remember(trouble)
        super().pause(trouble)
