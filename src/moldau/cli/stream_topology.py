"""What the commands of streams share for the file of a topology: reading it, its check in a process of its own, and running it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.interruptions import Interruptions
from moldau.cli.output import say
from moldau.model.extras import require

if TYPE_CHECKING:
    from moldau.streams.topology_file import StreamTopology

SUFFIX = ".toml"
_MAIN = "moldau.cli.main"


def is_topology(name: str | Path | None) -> bool:
    """Whether the argument of a command is a topology's file: no job and no Python file ends so."""
    return str(name).endswith(SUFFIX)


def opened(file: str | Path) -> "StreamTopology":
    """The topology of a file. click.ClickException with file and line."""
    from moldau.model.toml_table import PlanFileError
    from moldau.streams.topology_file import read_stream_topology

    try:
        return read_stream_topology(Path(file))
    except PlanFileError as error:
        raise click.ClickException(str(error)) from error


def run_topology(file: Path, directory: str | None, *, once: bool) -> None:
    """Until it is stopped, or with `once` until all is written."""
    require("lake", "stream jobs")
    from moldau.streams.topology_run import TopologyRun
    from moldau.streams.topology_state import default_directory

    topology = opened(file)
    with Interruptions():
        stages = _checked(file)
        run = TopologyRun(topology, stages, directory or default_directory(topology), lambda line: say(line, err=True), once=once)
        stopped = not once
        try:
            try:
                run.run_once() if once else run.run()
            except KeyboardInterrupt:
                stopped = True
                say(f"topology {topology.name}: stopping, each job at the end of its batch", err=True)
            run.stop()
        finally:  # a second signal does not wait
            run.kill()
    say(f"topology {topology.name}: {'stopped' if stopped else 'done'}")


def _checked(file: Path) -> list[list[str]]:
    """The jobs in the order of feeding, if there is no mistake. Another process makes them, on a Spark that ends with it."""
    command = [sys.executable, "-P", "-m", _MAIN, "stream", "check", str(file), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    try:
        document: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise click.ClickException(f"{file}: was not checked; nothing was started") from None
    for each in document["findings"]:
        say(f"{each['file']}:{each['line']}: error: {each['text']}", err=True)
    if count := len(document["findings"]):
        raise click.ClickException(f"{file}: {'an error' if count == 1 else f'{count} errors'}; nothing was started")
    stages: list[list[str]] = document["stages"]
    return stages
