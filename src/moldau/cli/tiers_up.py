"""``moldau tiers up``: start what a file of tiers names on this host, and stop it."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from moldau.cli.interruptions import Interruptions
from moldau.cli.output import say
from moldau.cli.tiers_options import data_option, file_argument, opened

if TYPE_CHECKING:
    from moldau.tiers.supervisor import TiersSupervisor
    from moldau.tiers.values import Tiers


@click.command("up")
@file_argument
@data_option
@click.option("--loads", is_flag=True, help="Start the loads too; they need Spark.")
def up(file: Path, directory: str, loads: bool) -> None:
    """Run the clusters, registries, mirrors and auditors of FILE on this host until SIGTERM or Ctrl-C.

    It prints the address of each cluster and registry, and "NAME is up" when all processes run. A process that ends is reported and
    started again, after a pause that grows while it keeps ending. All end with this command, also when it is killed: mirrors first, then
    auditors and loads, registries, clusters.

    FILE is checked before, as `moldau tiers check` does; an error there, or a process that ends at its start, is exit code 1.
    """
    tiers = opened(file)
    _check(tiers)
    from moldau.tiers.supervisor import TiersSupervisor

    supervisor = TiersSupervisor(tiers, directory, lambda line: say(line, err=True), loads=loads)
    with Interruptions():
        try:
            try:
                supervisor.hold()
                supervisor.start()
                _announce(tiers, supervisor)
                supervisor.watch()
            except KeyboardInterrupt:
                pass
            supervisor.stop()
        finally:  # a second signal does not wait
            supervisor.kill()


def _check(tiers: "Tiers") -> None:
    from moldau.cli.tiers_check import shown
    from moldau.mirror.loops import Severity
    from moldau.tiers.checks import find

    findings = [each for each in find(tiers) if each.severity is not Severity.NOTICE]
    for each in findings:
        say(shown(tiers, each), err=True)
    errors = sum(each.severity is Severity.ERROR for each in findings)
    if errors:
        raise click.ClickException(f"{tiers.topology.file}: {'an error' if errors == 1 else f'{errors} errors'}; nothing was started")


def _announce(tiers: "Tiers", supervisor: "TiersSupervisor") -> None:
    from moldau.tiers.state import existing_tiers_state

    for cluster in tiers.topology.clusters.values():
        print(f"cluster {cluster.name} ({cluster.kind.value}, {cluster.datacenter}) at {cluster.bootstrap}")
    for registry in tiers.topology.registries.values():
        print(f"registry {registry.name} at {registry.url}")
    name, count = tiers.topology.name, len(existing_tiers_state(supervisor.directory).processes(supervisor.directory))
    print(f"{name} is up: {count} processes; data in {supervisor.directory}; Ctrl-C stops them", flush=True)
