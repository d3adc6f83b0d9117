"""The console auditor: counts every topic of a cluster as a tier of its own, exactly once.

It reads whole batches from the raw connections, counts the events by their headers alone, and every few seconds, or when there is much
to say, publishes the counts together with the offsets that they reach up to, in one transaction. So an auditor that dies at any moment
has either published a stretch of the log or not; the next one goes on behind it. Only one auditor of a tier can be at work: a second one
takes over, and the first ends with `FencedError`.

What may pass is waited for (brokers that are away, a transaction whose end is not known, or that brokers ended since this process was
stopped in its midst): counts that are not published are thrown away, and counted again from the offsets of the last transaction.
"""

import logging
import threading
import time
from concurrent.futures import Future, wait

from moldau.audit.events import SchemaCheck
from moldau.audit.points import reached
from moldau.audit.publishing import OverdueError, Publisher
from moldau.audit.reading import TopicReader
from moldau.audit.round import AuditorOptions, Round
from moldau.audit.walker import Walker
from moldau.client.cluster import Cluster
from moldau.client.failures import FencedError, TransactionError
from moldau.model.errors import ErrorCode, MoldauError, PeerError, WorldError

__all__ = ["Auditor", "AuditorOptions"]

log = logging.getLogger(__name__)

_PATIENCE_S = 5.0
"""Between two attempts to go on after a failure."""
_STEP_S = 0.1
"""The one who waits for an auditor looks so often whether it is to stop."""


class _StopError(Exception):
    """The auditor is to end."""


class Auditor:
    """Counts the cluster that `bootstrap` belongs to. `run` once; `stop` from any thread, or from a signal handler.

    The work is done in a thread of its own, so that whoever is told to end does not wait for brokers that are away.
    """

    def __init__(self, bootstrap: str, options: AuditorOptions, *, is_tracked: SchemaCheck | None = None) -> None:
        self.options = options
        self._bootstrap = bootstrap
        self._is_tracked = is_tracked
        self._stopping = False
        self._publisher: Publisher | None = None
        self._overdue: OverdueError | None = None
        """Until the tier is taken over again: why it was lost, though perhaps to nobody."""
        self._troubles: set[tuple[type, ErrorCode | None]] = set()
        """What was said of the outage that is under way."""
        self._told = {"records": 0, "published": 0, "transactions": 0, "partitions": 0, "restarts": 0}

    def stop(self) -> None:
        """End soon: what is counted is published first."""
        self._stopping = True

    def statistics(self) -> dict[str, int]:
        """Records counted and published, transactions, partitions, and how often it restarted after a failure."""
        return dict(self._told)

    def run(self, *, once: bool = False) -> None:
        """Count until `stop`; with `once` up to where the logs end now.

        FencedError: another auditor of this tier has taken over. With `once` also WorldError, PeerError, TransactionError, which otherwise
        are logged, and the work is restarted.

        Told to stop it ends within `stop_s` seconds. If brokers do not answer by then, what is not published is counted by the next one.
        """
        ended: Future[None] = Future()

        def work() -> None:
            try:
                self._run(once=once)
            except BaseException as error:
                ended.set_exception(error)
            else:
                ended.set_result(None)

        threading.Thread(target=work, name=f"moldau audit {self.options.tier}", daemon=True).start()
        try:
            self._wait_for(ended)
        except BaseException:
            if not ended.done():  # Ctrl-C, where nobody has made a stop of it
                self._stopping = True
                self._wait_for(ended)
            raise
        if ended.done():
            ended.result()

    def _wait_for(self, ended: "Future[None]") -> None:
        """Until it has ended, or was told to `stop_s` ago."""
        deadline: float | None = None
        while not wait([ended], _STEP_S).done:
            if self._stopping:
                deadline = deadline or time.monotonic() + self.options.stop_s
                if time.monotonic() >= deadline:
                    self._give_up()
                    return

    def _give_up(self) -> None:
        log.warning("audit ended without the brokers: tier=%s; what was not published is counted by the next auditor", self.options.tier)
        publisher = self._publisher
        if publisher is not None:
            publisher.abandon()

    def _run(self, *, once: bool) -> None:
        while True:
            try:
                self._work(once=once)
            except FencedError:
                raise
            except (WorldError, PeerError, TransactionError) as error:
                if once:
                    raise
                if isinstance(error, OverdueError):
                    self._overdue = error
                self._say_interrupted(error)
                self._told["restarts"] += 1
                self._rest(_PATIENCE_S)
            else:
                return
            if self._stopping:
                return

    def _say_interrupted(self, error: MoldauError) -> None:
        """Once for each outage and kind of trouble: it is tried again every few seconds, perhaps for hours."""
        kind = (type(error), error.code if isinstance(error, PeerError) else None)
        level = logging.DEBUG if kind in self._troubles else logging.WARNING
        log.log(level, "audit interrupted, it is tried again: tier=%s reason=%s", self.options.tier, error)
        self._troubles.add(kind)

    def _work(self, *, once: bool) -> None:
        publisher = self._publisher = Publisher(self._bootstrap, self.options.tier, self.options.topics)
        try:
            with Cluster(self._bootstrap, client_id=f"moldau-audit-{self.options.tier}", sleep=self._pause) as cluster:
                if self._overdue is not None:
                    publisher.check_not_replaced(cluster, self._overdue)
                places = publisher.take_over(cluster)
                self._overdue = None
                reached("offsets read")
                reading, walker = TopicReader(cluster, self.options.topics, places), Walker(self._is_tracked, fast=self.options.fast)
                Round(self.options, self, publisher, reading, walker).go_on(once=once)
        except _StopError:
            log.info("audit stopped while brokers were away: tier=%s", self.options.tier)
        finally:
            publisher.close()
            self._publisher = None  # its threads end with it, and look for no brokers any more

    @property
    def interrupted(self) -> bool:
        """Whether it was interrupted, and has published nothing since."""
        return bool(self._troubles)

    @property
    def stopping(self) -> bool:
        """Whether it was asked to end."""
        return self._stopping

    def tell_partitions(self, count: int) -> None:
        """So many are read now."""
        self._told["partitions"] = count

    def tell(self, **more: int) -> None:
        """Add to the statistics. What was published ends an outage."""
        for name, number in more.items():
            self._told[name] += number
        if self._troubles and more.get("transactions"):
            log.warning("audit goes on, counts are published again: tier=%s", self.options.tier)
            self._troubles.clear()

    def _pause(self, seconds: float) -> None:
        """Wait before another try, unless we are to end."""
        if self._stopping:
            raise _StopError
        time.sleep(min(seconds, 0.2))

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < until:
            time.sleep(0.1)
