"""``moldau cluster up``: start the brokers of a cluster on this host, and stop them."""

import os

import click

from moldau.assembly.local_cluster.plan import (
    BROKERS,
    PORT,
    check_ports,
    check_settings,
    default_settings,
    kept_settings,
    metadata_place,
    plan,
)
from moldau.assembly.local_cluster.supervisor import Supervisor
from moldau.cli.interruptions import Interruptions
from moldau.cli.options import TEXT
from moldau.cli.output import say
from moldau.model.config.definition import InvalidConfigError


@click.command("up")
@click.option("--data", "directory", metavar="DIR", default="moldau-cluster", show_default=True, help="Directory of the cluster.")
@click.option("--brokers", metavar="N", type=click.IntRange(1, 99), help=f"How many brokers.  [default: as before, or {BROKERS}]")
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65_000),
    help=f"Port of the first broker, the others follow; 0 picks free ones.  [default: as before, or {PORT}]",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT,...|start",
    help="Keep the metadata in ZooKeeper, or `start` a server for it, instead of in a file.  [default: as before]",
)
@click.option(
    "-s",
    "--set",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="A setting of all brokers, kept for the next time; may be repeated.",
)
@click.option(
    "-d", "--delete", "deleted", metavar="NAME", type=TEXT, multiple=True, help="A setting that is kept no longer; may be repeated."
)
def up(
    directory: str, brokers: int | None, port: int | None, zookeeper: str | None, settings: tuple[str, ...], deleted: tuple[str, ...]
) -> None:
    """Run brokers on this host as one cluster until SIGTERM or Ctrl-C.

    It prints "listening on HOST:PORT,HOST:PORT,..." when all brokers take requests and know each other. Brokers have the ids from 1 on;
    each has its directory and its log in DIR, and keeps its port. A broker that ends is reported and stays down until `moldau cluster
    restart`. All end with this command, also when it is killed.

    New topics have 3 replicas, or as many as there are brokers, of which one may fail (min.insync.replicas).

    Exit code 1 when a broker cannot start, 2 for a setting that is not allowed.
    """
    try:
        check_settings(settings, os.environ)
    except InvalidConfigError as error:
        raise click.UsageError(error.message) from error
    supervisor = Supervisor(directory, lambda line: say(line, err=True))
    with Interruptions():
        try:
            try:
                supervisor.refuse_strangers()
                before = supervisor.hold()
                state = plan(directory, before, brokers, port, zookeeper, kept_settings(before, settings, deleted))
                check_ports(state)
                supervisor.start(state, [*default_settings(len(state.brokers)), *state.settings])
                supervisor.wait_serving()
                print("listening on " + ",".join(each.address for each in state.brokers), flush=True)
                print(_status_line(supervisor), flush=True)
                supervisor.watch()
            except KeyboardInterrupt:
                pass
            supervisor.stop()
        finally:  # a second signal does not wait
            supervisor.kill()


def _status_line(supervisor: Supervisor) -> str:
    state = supervisor.state
    where = f"data in {supervisor.directory}, metadata in {metadata_place(state.zookeeper)}"
    if state.settings:
        where += f"; set: {', '.join(state.settings)}"
    return f"{len(state.brokers)} brokers run; {where}; Ctrl-C stops them"
