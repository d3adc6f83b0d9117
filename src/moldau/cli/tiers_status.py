"""``moldau tiers status``: the processes of tiers on this host."""

from typing import Any

import click

from moldau.adapters.process_identity import ProcessState
from moldau.cli.exit_codes import FAILED
from moldau.cli.output import print_json, print_table, say
from moldau.cli.tiers_options import data_option
from moldau.tiers.state import TierProcess, existing_tiers_state


@click.command("status")
@data_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def status(directory: str, as_json: bool) -> None:
    """Show all processes: kind, name, address, process id, state (starting, up, paused or dead), and how often it was started again.

    Exit code 1 unless `moldau tiers up` runs and all processes are up.
    """
    state = existing_tiers_state(directory)
    rows = [_row(each) for each in state.processes(directory)]
    if as_json:
        print_json({"name": state.name, "file": state.file, "running": state.is_supervised, "processes": rows})
    else:
        print_table(
            ("kind", "name", "address", "pid", "state", "restarts"),
            [["-" if cell is None else str(cell) for cell in (row | {"address": _short(row["address"])}).values()] for row in rows],
            numeric=("pid", "restarts"),
            drop=("kind", "address"),
        )
        if not state.is_supervised:
            say(f"`moldau tiers up` does not run; `moldau tiers up {state.file} --data {directory}` starts {state.name} again")
    if not state.is_supervised or any(row["state"] != ProcessState.UP for row in rows):
        click.get_current_context().exit(FAILED)


def _short(address: str) -> str:
    """The first of several addresses, and how many more there are: brokers have rows of their own."""
    first, *others = address.split(",")
    return f"{first} +{len(others)}" if others else first


def _row(process: TierProcess) -> dict[str, Any]:
    state = process.state
    return {
        "kind": process.kind,
        "name": process.name,
        "address": process.address,
        "pid": process.pid,
        "state": "starting" if state is ProcessState.UP and not process.serves else str(state),
        "restarts": process.restarts,
    }
