"""``moldau zookeeper``: run real ZooKeeper servers, for a cluster on this host or for tests."""

import os
import sys
import time
from collections.abc import Sequence

import click

from moldau.adapters.zookeeper_server import Peer, ZookeeperServer, free_ports, read_config
from moldau.cli.interruptions import Interruptions
from moldau.model.zookeeper_connect import PORT

POLL_S = 0.02
WATCH_S = 0.2
WAITING_LINE_S = 5.0
HOST = "127.0.0.1"


@click.command("zookeeper")
@click.option("--data", "directory", metavar="DIR", help="Directory of the server's data; made if it is missing.")
@click.option("--host", metavar="HOST", help=f"Address to listen on.  [default: {HOST}]")
@click.option("--port", metavar="N", type=click.IntRange(0, 65535), help=f"Port for clients; 0 picks a free one.  [default: {PORT}]")
@click.option("--config", "file", metavar="FILE", help="A zoo.cfg, of which the options here change single settings.")
@click.option("--id", "server_id", metavar="N", type=click.IntRange(1, 255), help="Number of this server among the server.N of --config.")
@click.option(
    "--servers",
    metavar="N",
    type=click.IntRange(1, 9),
    default=1,
    show_default=True,
    help="How many servers to run here as one ensemble, on consecutive ports from --port on, each in a directory of its own in --data.",
)
def zookeeper(directory: str | None, host: str | None, port: int | None, file: str | None, server_id: int | None, servers: int) -> None:
    """Run a ZooKeeper server until SIGTERM or Ctrl-C.

    It needs Java 17 or newer, and the Python package pyspark, whose jars have the server in them. It prints "listening on HOST:PORT" when
    it serves; with --servers all addresses, by commas, as `moldau serve --zookeeper` takes them. Clients need no authentication.

    Exit code 1 without Java, for a port or a directory that cannot be had, and when the server ends by itself.
    """
    settings = {} if file is None else read_config(file)
    directory = directory or settings.get("dataDir")
    if directory is None:
        raise click.UsageError("--data: no directory for the server's data")
    host = host or settings.get("clientPortAddress") or HOST
    if port is None:
        port = int(settings.get("clientPort", PORT))
    if servers > 1 and (server_id is not None or any(name.startswith("server.") for name in settings)):
        raise click.UsageError("--servers: the ensemble is in --config, or --id is given")
    run(_servers(directory, host, port, settings, server_id, servers))


def run(servers: Sequence[ZookeeperServer]) -> None:
    """Start servers, say where they listen, and wait for a signal."""
    with Interruptions():
        try:
            try:
                for each in servers:
                    each.start()
                _wait_serving(servers)
                print("listening on " + ",".join(f"{each.host}:{each.port}" for each in servers), flush=True)
                _wait_ended(servers)
            except KeyboardInterrupt:
                pass
            for each in servers:
                each.stop()
        finally:  # a second signal does not wait
            for each in servers:
                if each.exit_code is None:
                    each.kill()


def _servers(directory: str, host: str, port: int, settings: dict[str, str], server_id: int | None, number: int) -> list[ZookeeperServer]:
    ports = [port + index for index in range(number)] if port else free_ports(host, number)
    if number == 1:
        return [ZookeeperServer(directory, host, ports[0], settings=settings, server_id=server_id)]
    between = free_ports(host, 2 * number)
    peers = [Peer(host, between[2 * index], between[2 * index + 1]) for index in range(number)]
    return [
        ZookeeperServer(os.path.join(directory, str(each)), host, ports[each - 1], settings=settings, server_id=each, peers=peers)
        for each in range(1, number + 1)
    ]


def _wait_serving(servers: Sequence[ZookeeperServer]) -> None:
    line_at = time.monotonic() + WAITING_LINE_S
    while not all(each.is_serving() for each in servers):
        for each in servers:
            if each.exit_code is not None:
                raise click.ClickException(f"the server over {each.directory} ended at its start, with code {each.exit_code}")
        if time.monotonic() >= line_at:
            line_at += WAITING_LINE_S
            print("waiting until the server serves; one of an ensemble needs a majority of the others", file=sys.stderr, flush=True)
        time.sleep(POLL_S)


def _wait_ended(servers: Sequence[ZookeeperServer]) -> None:
    """Until all have ended. Those of an ensemble that are left serve without the others, as long as they are a majority."""
    running = list(servers)
    while True:
        for each in running[:]:
            if each.exit_code is not None:
                running.remove(each)
                text = f"the server over {each.directory} ended, with code {each.exit_code}"
                if not running:
                    raise click.ClickException(text)
                print(f"{text}; {len(running)} of {len(servers)} are left", file=sys.stderr, flush=True)
        time.sleep(WATCH_S)
