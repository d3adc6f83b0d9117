"""``moldau registry``: run a schema registry over a cluster; and what ``moldau serve --registry`` needs to run one beside its broker."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from moldau.cli.interruptions import Interruptions
from moldau.cli.listening import host_port, listen_error
from moldau.cli.options import SECONDS, TEXT, bootstrap_option
from moldau.model.config.tables.registry import CONNECTIONS_MAX, MEMORY_BYTES_MAX
from moldau.model.host_port import parse_host_port

if TYPE_CHECKING:
    from moldau.registry.server import RegistryServer

DEFAULT_LISTEN = "127.0.0.1:8081"


@click.command("registry")
@bootstrap_option
@click.option(
    "-l", "--listen", metavar="HOST:PORT", callback=host_port, default=DEFAULT_LISTEN, show_default=True, help="Port 0 picks a free one."
)
@click.option("--advertise", metavar="HOST:PORT", callback=host_port, help="Where other registries reach this one, when that is another.")
@click.option(
    "--allow-host", "hosts", metavar="NAME", multiple=True, help="Another name that clients reach it under; may be repeated; * is any."
)
@click.option(
    "--allow-origin", "origins", metavar="URL", multiple=True, help="An origin whose pages may use it; may be repeated; * is any."
)
@click.option(
    "--max-connections",
    metavar="N",
    type=click.IntRange(1),
    default=CONNECTIONS_MAX,
    show_default=True,
    help="Connections at once; others get 503.",
)
@click.option(
    "--max-memory",
    metavar="BYTES",
    type=click.IntRange(1),
    default=MEMORY_BYTES_MAX,
    show_default=True,
    help="Memory of all schemas and configurations; at the bound what would add to it is refused.",
)
@click.option(
    "--trust-writer",
    "trusted",
    metavar="URL",
    multiple=True,
    help="A registry of another make in the group, which may be handed changes; may be repeated.",
)
@click.option("--topic", type=TEXT, default="_schemas", show_default=True, help="The compacted topic that keeps the schemas.")
@click.option("--group", type=TEXT, default="schema-registry", show_default=True, help="Registries of one group elect one that writes.")
@click.option(
    "--session-timeout",
    metavar="SECONDS",
    type=SECONDS,
    default=10.0,
    show_default=True,
    help="After so long without a sign of life another registry takes over.",
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def registry(
    bootstrap: str,
    listen: str,
    advertise: str | None,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    max_connections: int,
    max_memory: int,
    trusted: tuple[str, ...],
    topic: str,
    group: str,
    session_timeout: float,
    log_level: str,
    log_format: str,
) -> None:
    """Run a schema registry until SIGTERM or Ctrl-C; a second one ends it at once, with exit code 130.

    It prints "listening on URL" when it answers; its log goes to standard error. It has Confluent's REST interface and keeps everything in
    a compacted topic. Several may run: one writes, the others hand changes on to it.

    Exit code 1 for a port that cannot be had, a cluster that does not answer or a topic that is not compacted.
    """
    from moldau.assembly.exposure import warn_if_exposed
    from moldau.assembly.interpreter import SWITCH_INTERVAL_S, use_one_heap
    from moldau.assembly.server_log import set_up_logging
    from moldau.model.extras import require

    require("registry", "a schema registry")
    from moldau.registry.limits import HttpLimits
    from moldau.registry.server import RegistryServer

    use_one_heap()
    set_up_logging(log_level, log_format)
    sys.setswitchinterval(SWITCH_INTERVAL_S)  # lists and decisions are made in threads beside the look-ups
    warn_if_exposed("schema registry", [parse_host_port(listen)], "give --listen an address such as 127.0.0.1:8081")
    asked = threading.Event()
    server = RegistryServer(
        bootstrap, listen, advertise=advertise, topic=topic, group=group, session_timeout_s=session_timeout,
        trusted_writers=trusted, allowed_hosts=hosts,
        allowed_origins=origins, http_limits=HttpLimits(connections_max=max_connections), memory_bytes_max=max_memory,
    )  # fmt: skip
    with Interruptions() as interruptions:
        interruptions.at_once = lambda: None
        try:
            url = server.start()  # it may wait long for a broker that does not answer
            interruptions.on_stop = asked.set
            print(f"listening on {url}", flush=True)
            asked.wait()
        except KeyboardInterrupt:
            pass
        except OSError as error:
            raise listen_error(error.strerror or str(error), error, "--listen") from error
        finally:
            server.stop()


class RegistryBeside:
    """A registry beside the broker of this process. It starts in a thread, since the broker has to answer it meanwhile; its port is bound
    before, so that a start which cannot have it leaves nothing.
    """

    def __init__(
        self, listen: str, *, hosts: Sequence[str] = (), origins: Sequence[str] = (), connections_max: int, memory_bytes_max: int
    ) -> None:
        self.failure: Exception | None = None
        self._listen = listen
        self._hosts = hosts
        self._origins = origins
        self._connections_max = connections_max
        self._memory_bytes_max = memory_bytes_max
        self._bound: socket.socket | None = None
        self._server: RegistryServer | None = None
        self._thread: threading.Thread | None = None
        self._stopping = False

    def bind(self) -> None:
        """Take the port. click.ClickException if it cannot be had."""
        from moldau.registry.binding import bind

        try:
            self._bound = bind(*parse_host_port(self._listen))
        except OSError as error:
            raise listen_error(error.strerror or str(error), error, "--registry") from error

    def release(self) -> None:
        """Give the port back if the registry was never started."""
        if self._bound is not None:
            self._bound.close()

    def start(self, bootstrap: str, announce: Callable[[], object]) -> None:
        """Begin to start it, and `announce` the broker and it when it listens; a failure asks the process to end."""
        self._thread = threading.Thread(target=self._start, args=(bootstrap, announce), name="moldau-registry-start", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop it; what it is starting with ends early."""
        self._stopping = True
        if self._server is not None:
            self._server.stop()
        if self._thread is not None:
            self._thread.join()
        if self._server is not None:
            self._server.stop()

    def _start(self, bootstrap: str, announce: Callable[[], object]) -> None:
        try:
            from moldau.registry.limits import HttpLimits
            from moldau.registry.server import RegistryServer

            limits = HttpLimits(connections_max=self._connections_max)
            server = RegistryServer(
                bootstrap,
                self._listen,
                alone=True,
                allowed_hosts=self._hosts,
                allowed_origins=self._origins,
                http_limits=limits,
                memory_bytes_max=self._memory_bytes_max,
                bound=self._bound,
            )
            self._bound = None
            self._server = server
            url = server.start()
        except Exception as error:
            if not self._stopping:
                self.failure = error
                os.kill(os.getpid(), signal.SIGTERM)
            return
        announce()
        print(f"schema registry listening on {url}", flush=True)
