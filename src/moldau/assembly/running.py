"""A broker on an event loop: sockets, threads, store, started and stopped in order.

Start: bind (a taken port is an error before anything is opened), open the store and the logs, announce the broker, accept. Stop: hand
leaderships over to other brokers, accept no more, let what is in flight finish within `shutdown.timeout.ms`, bring the logs to disk and
close them, as many as there is time for, end the session with the store.
"""

import asyncio
import contextlib
import logging
import math
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.adapters.asyncio_server import Server, ServerLimits
from moldau.adapters.binding import bind
from moldau.adapters.event_loop import LoopClock
from moldau.adapters.posix_files import PosixFiles
from moldau.adapters.threads import LoopBackground
from moldau.assembly.data_directory import check_directory
from moldau.assembly.exposure import warn_if_exposed
from moldau.assembly.making import BrokerPorts, make_broker
from moldau.assembly.open_files import connections_max, log_files_max
from moldau.assembly.tree_store import STORE, TreeStore
from moldau.broker.metadata.membership import OtherClusterError
from moldau.cluster.snapshot import BrokerInfo, Endpoint
from moldau.log.log_set import AllDirectoriesFailedError, AllFailedListener
from moldau.log.meta_properties import FILE_NAME as META_PROPERTIES
from moldau.log.meta_properties import read_meta_properties
from moldau.model.config.listeners import EVERY_INTERFACE, Listener, listeners_of
from moldau.model.config.store import BrokerConfig
from moldau.model.errors import CoordinationError, MoldauError, WorldError

if TYPE_CHECKING:
    from moldau.adapters.worker_process import LoopWorkers
    from moldau.broker.broker import Broker
    from moldau.ports.transport import Network

_LOG = logging.getLogger(__name__)

POLL_S = 0.005
LOGS_SHARE = 0.75
"""Which share of `shutdown.timeout.ms`, from the signal on, there is for syncing logs. Then the process ends soon, and in order."""
LOGS_SHARE_AFTER = 0.25
"""Which share of `shutdown.forced.after.ms` there is in any case, however long connections have taken."""
METADATA_WAIT_S = 10.0
"""How long a start waits for what another broker, which is controller, sends."""
UNREAD_LIMIT_S = 0.5
"""How long a stop waits for a peer that takes nothing of what is queued for it."""


class StartInterruptedError(MoldauError):
    """The broker was asked to stop while its start waited for the metadata store."""


class RunningBroker:
    """One broker with everything around it. All methods run on the loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: BrokerConfig,
        on_all_failed: AllFailedListener = lambda _failure: None,
        *,
        before_threads: Callable[[], object] = lambda: None,
    ) -> None:
        """`on_all_failed` is called when the last log directory is lost; it should have `stop` called. `before_threads` is called before
        the first thread that works for the broker is started, and may be called again.
        """
        self.config = config
        self.failure: AllDirectoriesFailedError | None = None
        """What has made an end to serving."""
        self._listeners = listeners_of(config.value)
        self._on_all_failed = on_all_failed
        self._before_threads = before_threads
        self.broker: Broker
        self.addresses: list[tuple[str, int]] = []
        """Where its listeners are, in their order: as asked for, with the real port."""
        self._loop = loop
        self._background: LoopBackground
        self._compute: LoopBackground
        self._recompress: LoopBackground
        self._workers: LoopWorkers | None = None
        self._tree: TreeStore
        self._starting: asyncio.Future[None] = loop.create_future()
        """Ends when the broker is open, for a start that waits for that."""
        self._waiting: asyncio.Future[None] = loop.create_future()
        """Ends when the broker has metadata, for a start that waits for that."""
        self._server: Server
        self._deadline = math.inf

    async def start(self, *, adopt: bool = False, on_bound: Callable[[], object] = lambda: None) -> None:
        """Listen and serve. OSError for the sockets, WorldError for the rest; then nothing is left open. Waits only for a store
        that is not this process's own, and for a controller that is another broker, which sends what clients are answered.

        `on_bound` is called when it has the ports, before the store is opened; what it raises ends the start in the same way.
        """
        check_directory(os.path.abspath(self.config.list("log.dirs")[0]), STORE)
        sockets = self._bind()
        try:
            on_bound()
            await self._open(adopt=adopt)
        except BaseException:
            for _, bound in sockets:
                bound.close()
            raise
        bound_to = [bound.getsockname()[:2] for _, bound in sockets]
        self._server.serve(sockets)
        await self._wait_for_metadata()
        warn_if_exposed("broker", bound_to, "set listeners=PLAINTEXT://localhost:9092 (moldau serve --listen localhost:9092)")
        ignored = self.config.static.without_effect()
        if ignored:
            _LOG.warning("settings without effect in this version: names=%s", ",".join(ignored))
        for passed_over in self.config.static.passed_over:
            _LOG.warning("setting of Apache Kafka ignored: %s", passed_over)

    async def stop(self, since: float | None = None) -> None:
        """Stop in order; waits for requests in flight. `since`: when it was asked for, if not now, by the loop's time."""
        asked = self._loop.time() if since is None else since
        self._deadline = min(self._deadline, asked + self.config.int("shutdown.timeout.ms") / 1000)
        hand_over = self.broker.membership.hand_over()
        while hand_over is not None and not hand_over.is_over and self._loop.time() < self._deadline:
            await asyncio.sleep(POLL_S)
        self._server.stop_listening()
        self.broker.finish_connections()
        look_at = self._loop.time() + UNREAD_LIMIT_S
        while (self.broker.connections or self._server.connections) and self._loop.time() < self._deadline:
            await asyncio.sleep(POLL_S)
            if self._loop.time() >= look_at:
                look_at += UNREAD_LIMIT_S
                self._server.abort_unread()
        if self._server.connections:
            _LOG.warning("connections cut at shutdown: number=%d", self._server.connections)
        self._server.abort()
        self.broker.housekeeping.stop()
        self.broker.flusher.stop()
        while self._background.running or (self._workers is not None and self._workers.running):  # a sync ends, whatever the disk says
            await asyncio.sleep(POLL_S)
        await self._close_logs(asked)
        if self._workers is not None:
            self._workers.close()
        self._compute.cut_off()
        self._recompress.cut_off()
        self._background.close()
        await self._tree.close()
        await asyncio.sleep(0)  # receivers of closed connections are notified

    async def _close_logs(self, asked: float) -> None:
        """Stop the broker. Its logs are synced until their share of the time is over."""
        from moldau.log.closing import SYNCS_MAX

        timeout_s, forced_s = (self.config.int(name) / 1000 for name in ("shutdown.timeout.ms", "shutdown.forced.after.ms"))
        due = max(asked + LOGS_SHARE * timeout_s, self._loop.time() + LOGS_SHARE_AFTER * forced_s)
        stopped: asyncio.Future[None] = self._loop.create_future()

        def ended(error: Exception | None) -> None:
            if error is None:
                stopped.set_result(None)
            else:
                stopped.set_exception(error)

        syncs = LoopBackground(self._loop, threads_max=SYNCS_MAX)
        if self.broker.slices.run(self.broker.stop(syncs, lambda: self._loop.time() >= due), ended) is not None:
            await stopped
        syncs.close()

    async def _wait_for_metadata(self) -> None:
        """For a bounded time: a broker whose controller is gone comes up all the same, and requests of clients wait."""
        cache = self.broker.cache
        if cache.is_complete:
            return
        cache.on_complete[self._end_wait] = None
        try:
            await asyncio.wait_for(self._waiting, METADATA_WAIT_S)
        except TimeoutError:
            _LOG.warning("no metadata received from a controller within %.0f s; requests of clients wait for them", METADATA_WAIT_S)

    def _end_wait(self) -> None:
        if not self._waiting.done():
            self._waiting.set_result(None)

    def _network(self) -> "Network":
        from moldau.adapters.asyncio_network import AsyncioNetwork

        return AsyncioNetwork(self._loop)

    def interrupt_start(self) -> None:
        """Have a start that waits for the metadata store end with StartInterruptedError, and one that waits for metadata end at once."""
        if not self._starting.done():
            self._starting.set_exception(StartInterruptedError("the start was interrupted"))
            self._starting.exception()  # it may be that nothing waits
        self._end_wait()

    def hurry(self) -> None:
        """Cut the connections that a stop is waiting for, or would wait for."""
        self._deadline = 0.0

    def _bind(self) -> list[tuple[str, socket.socket]]:
        """Sockets with the names of their listeners. The `filename` of an OSError is the listener that cannot be bound."""
        backlog = self.config.int("socket.listen.backlog.size")
        sockets: list[tuple[str, socket.socket]] = []
        try:
            for listener in self._listeners.bound:
                try:
                    bound = bind(listener.host, listener.port, backlog)
                except OSError as error:
                    error.filename = str(listener)
                    raise
                sockets += [(listener.name, each) for each in bound]
                self.addresses.append((listener.host, bound[0].getsockname()[1]))
        except BaseException:
            for _, bound_socket in sockets:
                bound_socket.close()
            raise
        return sockets

    def _all_failed(self, failure: AllDirectoriesFailedError) -> None:
        self.failure = failure
        self._on_all_failed(failure)

    async def _open(self, *, adopt: bool) -> None:
        directories = [os.path.abspath(path) for path in self.config.list("log.dirs")]
        files = PosixFiles()
        files.make_directory(directories[0])
        clock = LoopClock(self._loop)
        self._tree = tree = TreeStore(self.config, self._loop, directories[0], self._before_threads)
        await tree.open(self._starting)
        self._choose_rack()
        self._background = LoopBackground(self._loop, before_first=self._before_threads)
        self._compute = LoopBackground(self._loop, threads_max=1, before_first=self._before_threads)
        self._recompress = LoopBackground(self._loop, threads_max=1, before_first=self._before_threads)
        try:
            self.broker = make_broker(
                self.config,
                BrokerPorts(
                    directories=directories,
                    files=files,
                    clock=clock,
                    background=self._background,
                    compute=self._compute,
                    recompress=self._recompress,
                    coordination=tree.coordination,
                    network=self._network,
                    random_bytes=os.urandom,
                    workers=self._make_workers,
                    end_earlier_session=tree.end_earlier_session(files),
                    on_all_failed=self._all_failed,
                    log_files_max=log_files_max(),
                ),
            )
            self.broker.advertised = self._advertised()
            self._show_advertised()
            self.broker.start(self._info(), self._started, adopt=adopt)
            await self._starting
            tree.started()
        except BaseException as error:
            if hasattr(self, "broker"):
                self.broker.abandon_start()
            with contextlib.suppress(MoldauError):
                await tree.close()
            self._background.close()
            if tree.is_new:
                if not adopt and hasattr(self, "broker"):
                    _disown(files, directories, self.broker.metadata.cluster_id)
                tree.remove()
            if isinstance(error, OtherClusterError):
                raise _other_cluster(tree.name, error) from error
            raise
        quota = self.broker.admission.connections
        quota.files_max = connections_max()
        self._server = Server(self._loop, self.broker.accept, self._limits(), quota)
        self.broker.on_reconfigured.append(self._reconfigured)

    def _started(self, error: WorldError | None) -> None:
        if self._starting.done():
            return
        if error is None:
            self._starting.set_result(None)
        else:
            self._starting.set_exception(error)

    def _make_workers(self) -> "LoopWorkers":
        from moldau.adapters.worker_process import LoopWorkers

        self._before_threads()
        self._workers = LoopWorkers(self._loop)
        return self._workers

    def _bound(self) -> list[Listener]:
        """The listeners, with real ports."""
        return [Listener(name, *address) for (name, _, _), address in zip(self._listeners.bound, self.addresses, strict=True)]

    def _advertised(self) -> dict[str, Endpoint]:
        """What clients receive, by listener; of one that is missing, each the address that it has connected to."""
        advertised: dict[str, Endpoint] = {}
        on_every_interface = []
        for name, host, port in self._bound():
            given = self._listeners.advertised.get(name)
            if given is not None:
                advertised[name] = Endpoint(name, given.host, given.port or port)
            elif host in EVERY_INTERFACE:
                on_every_interface.append(name)
            elif host != "localhost":
                advertised[name] = Endpoint(name, host, port)
        if on_every_interface:
            _LOG.info(
                "advertised address: each client receives the one that it connected to: listeners=%s; "
                "advertised.listeners (--advertise) sets another",
                ",".join(on_every_interface),
            )
        return advertised

    def _show_advertised(self) -> None:
        """Have DescribeConfigs show what `listeners` means for clients, where it was given and names a host; as Kafka's brokers do."""
        given = self.config.static.texts
        hosts = {host for host, _ in self.addresses}
        if "listeners" in given and "advertised.listeners" not in given and hosts.isdisjoint(EVERY_INTERFACE):
            self.config.derive("advertised.listeners", ",".join(map(str, self._bound())), "listeners")

    def _choose_rack(self) -> None:
        """A broker that others may join is in the rack of its host, unless it is given one: replicas are on several hosts if there are."""
        if self._tree.shared_by is not None and "broker.rack" not in self.config.static.texts:
            self.config.derive("broker.rack", socket.gethostname(), self._tree.shared_by)

    def _info(self) -> BrokerInfo:
        """What is registered: the advertised addresses, or the best that is known of them."""
        found = []
        for name, host, port in self._bound():
            best = Endpoint(name, socket.gethostname() if host in EVERY_INTERFACE else host, port)
            found.append(self.broker.advertised.get(name, best))
        found.sort(key=lambda each: each.listener != self._listeners.inter_broker)  # its endpoint comes first
        return BrokerInfo(self.broker.broker_id, tuple(found), self.config.optional_string("broker.rack"))

    def _limits(self) -> ServerLimits:
        config = self.config
        return ServerLimits(
            idle_max_ms=config.int("connections.max.idle.ms"),
            send_buffer_bytes=config.int("socket.send.buffer.bytes"),
            receive_buffer_bytes=config.int("socket.receive.buffer.bytes"),
        )

    def _reconfigured(self) -> None:
        self._server.limits = self._limits()


def _other_cluster(store: str, error: OtherClusterError) -> CoordinationError:
    """The error for an adoption of a directory beside an existing store."""
    return CoordinationError(
        f"{store}: this metadata store belongs to cluster {error.found}, the directories to adopt to {error.wanted}; "
        "if the store's topics are not needed, move the file away and start with --adopt again",
        retriable=False,
    )


def _disown(files: PosixFiles, directories: list[str], cluster_id: str) -> None:
    """Take back what says that directories are of a cluster whose store, made by this start, goes. Its id was random: no other has it."""
    for directory in directories:
        with contextlib.suppress(MoldauError):
            found = read_meta_properties(files, directory)
            if cluster_id and found is not None and found.cluster_id == cluster_id:
                files.remove(f"{directory}/{META_PROPERTIES}")
