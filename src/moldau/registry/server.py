"""The schema registry as a server in a thread: HTTP in front of the topic ``_schemas``, which is all of its state.

    registry = RegistryServer("localhost:9092", listen="127.0.0.1:8081")
    url = registry.start()
    ...
    registry.stop()

Start: bind the port, read the topic to its end, listen, take part in the election. Stop: the other way round.
"""

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from moldau.client.cluster import Cluster
from moldau.model.config.tables.registry import MEMORY_BYTES_MAX
from moldau.model.host_port import parse_host_port
from moldau.registry.access import Access
from moldau.registry.app import App
from moldau.registry.binding import bind
from moldau.registry.changes import Changes
from moldau.registry.election import SESSION_TIMEOUT_S, Election, RegistryIdentity
from moldau.registry.http_server import HttpServer
from moldau.registry.limits import HttpLimits, WorkLimits
from moldau.registry.peers import WriterConfirmation
from moldau.registry.schema_workers import SchemaWorkers
from moldau.registry.schemas.answers import AnswerCache
from moldau.registry.schemas_topic import SCHEMAS_TOPIC, Follower, SchemasTopicWriter, TopicReadError, ensure_topic
from moldau.registry.state import RegistryState

log = logging.getLogger(__name__)

GROUP = "schema-registry"
_READ_STALLED_S = 60.0
"""A start ends with an error when nothing more of the topic could be read for so long."""
_WRITE_TIMEOUT_S = 10.0
_GRACE_S = 2
"""So long a stop waits for answers that are under way."""
_EVERY_INTERFACE = ("", "0.0.0.0", "::", "*")


class RegistryServer:
    """A registry over the cluster of `bootstrap_servers`, listening on `listen` ("HOST:PORT", port 0 for any free one).

    `advertise` is the address that other registries reach it under, if that is another one. All registries of a `group` share a `topic`.
    One that is `alone` forwards no changes; others forward to an elected one that confirms itself, or whose URL is in `trusted_writers`.
    Clients may know it under `allowed_hosts` too, and pages of `allowed_origins` may ask it (`access`); `*` is any. `bound` is a socket
    that is bound to `listen` already (`binding`); the first start takes it over.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        listen: str = "127.0.0.1:8081",
        *,
        advertise: str | None = None,
        topic: str = SCHEMAS_TOPIC,
        group: str = GROUP,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        alone: bool = False,
        trusted_writers: Iterable[str] = (),
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
        http_limits: HttpLimits = HttpLimits(),  # noqa: B008 - frozen
        work_limits: WorkLimits = WorkLimits(),  # noqa: B008 - frozen
        memory_bytes_max: int = MEMORY_BYTES_MAX,
        bound: socket.socket | None = None,
    ) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.topic = topic
        self.group = group
        self.state = RegistryState(memory_bytes_max=memory_bytes_max)
        self._listen = parse_host_port(listen)
        self._advertise = None if advertise is None else parse_host_port(advertise)
        self._session_timeout_s = session_timeout_s
        self._alone = alone
        self._trusted = frozenset(url.rstrip("/") for url in trusted_writers)
        self._hosts = tuple(allowed_hosts)
        self._origins = tuple(allowed_origins)
        self._http_limits = http_limits
        self._work_limits = work_limits
        self._memory_bytes_max = memory_bytes_max
        self._bound = bound
        self._pid = os.getpid()
        self._parts: _RunningServer | None = None

    @property
    def url(self) -> str:
        """``http://HOST:PORT``, for clients on this machine."""
        if self._parts is None:
            raise RuntimeError("the schema registry has not been started")
        return self._parts.url

    @property
    def writes(self) -> bool:
        """Whether it is the one among the registries that writes."""
        return self._parts is not None and self._parts.election.mine

    def worker_processes(self) -> list[int]:
        """Ids of the processes in which schemas are read."""
        return [] if self._parts is None else self._parts.schema_workers.processes()

    def start(self) -> str:
        """Start, and wait until it answers; its URL. OSError for a port that cannot be had, UnfitTopicError, WorldError, PeerError."""
        if self._parts is None:
            bound, self._bound = self._bound or bind(*self._listen), None
            try:
                self._parts = self._assemble(bound)
                self._parts.start()
            except BaseException:
                bound.close()
                self.stop()
                raise
        return self.url

    def stop(self) -> None:
        """Stop in order; harmless when it has stopped, and in a process forked from the one that started it.

        While another thread is in `start`, that ends with TopicReadError.
        """
        parts, self._parts = self._parts, None
        if parts is not None and os.getpid() == self._pid:
            parts.stop()

    def _assemble(self, bound: socket.socket) -> "_RunningServer":
        answers = AnswerCache()
        self.state = RegistryState(answers.parsed, self._memory_bytes_max)  # the state of an earlier run may have what was deleted since
        host, port = bound.getsockname()[:2]
        with Cluster(self.bootstrap_servers, client_id="moldau-registry") as cluster:
            ensure_topic(cluster, self.topic)
            cluster_id = cluster.metadata([]).cluster_id or ""
        reached = self._advertise or (socket.gethostname() if self._listen[0] in _EVERY_INTERFACE else self._listen[0], port)
        follower = Follower(self.bootstrap_servers, self.topic, self.state)
        writer = SchemasTopicWriter(self.bootstrap_servers, self.topic, f"{self.group}:{self.topic}", timeout_s=_WRITE_TIMEOUT_S)
        election = Election(
            self.bootstrap_servers, self.group, RegistryIdentity(reached[0], reached[1]), session_timeout_s=self._session_timeout_s
        )
        confirming = WriterConfirmation(self.state, follower, self._trusted)
        changes = Changes(self.state, follower, writer, election, confirming, alone=self._alone)
        schema_workers = SchemaWorkers(answers, self._work_limits)
        access = Access((*self._hosts, reached[0], self._listen[0], socket.gethostname()), self._origins)
        limits = self._http_limits
        app = App(self.state, changes, schema_workers, access, cluster_id=cluster_id, limits=limits)
        local = "127.0.0.1" if host in _EVERY_INTERFACE else host
        url = RegistryIdentity(local, port).url
        return _RunningServer(url, bound, follower, writer, election, changes, schema_workers, HttpServer(app, limits, _GRACE_S), app)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


class _RunningServer:
    """What one run of a server is made of."""

    def __init__(
        self,
        url: str,
        bound: socket.socket,
        follower: Follower,
        writer: SchemasTopicWriter,
        election: Election,
        changes: Changes,
        schema_workers: SchemaWorkers,
        http: HttpServer,
        app: App,
    ) -> None:
        self.url = url
        self.election = election
        self._bound = bound
        self._follower = follower
        self._writer = writer
        self._changes = changes
        self._app = app
        self.schema_workers = schema_workers
        self._http = http
        self._thread = threading.Thread(target=self._serve, name="moldau-registry-http", daemon=True)
        self._stopping = False
        self._lock = threading.Lock()
        """Held while threads are started, and while it is noted that none is to be started any more."""

    def start(self) -> None:
        self._follower.start()
        end = self._follower.read_all(_READ_STALLED_S)
        with self._lock:
            if self._stopping:
                raise TopicReadError(self._follower.topic, "the registry is stopping")
            self._thread.start()
            self._http.listening.wait()
            self.election.start()
            self.schema_workers.warm_up()
        log.info("schema registry listens: url=%s topic=%s offset=%d", self.url, self._follower.topic, end)

    def stop(self) -> None:
        with self._lock:
            self._stopping = True
        self._changes.stop()
        self._http.should_exit = True
        if self._thread.ident is not None:
            self._thread.join()
        self._bound.close()
        self.schema_workers.close()
        self.election.stop()
        self._app.close()
        self._follower.stop()
        self._writer.close()

    def _serve(self) -> None:
        asyncio.run(self._http.serve([self._bound]))
