"""``moldau stream check``: mistakes in a job or a topology, without running it."""

from pathlib import Path

import click

from moldau.cli.exit_codes import FAILED
from moldau.cli.interruptions import Interruptions
from moldau.cli.options import TEXT, ExistingPath
from moldau.cli.output import print_json, say
from moldau.cli.stream_run import failing, loaded
from moldau.cli.stream_topology import is_topology, opened
from moldau.model.extras import require


@click.command("check")
@click.argument("file", metavar="FILE|TOPOLOGY", type=ExistingPath(path_type=Path, dir_okay=False))
@click.option("--job", metavar="NAME", type=TEXT, help="Which job, of a file that makes several.")
@click.option("--json", "as_json", is_flag=True, help="Of a topology: print one JSON document.")
def check(file: Path, job: str | None, as_json: bool) -> None:
    """Look for mistakes in the job that the Python FILE makes, or in a TOPOLOGY of jobs (TOML), without running anything.

    A job is compared with its checkpoints, its outputs and the report of its last process, as a start would do it. In a topology each job
    is, and found are also files that fail, cycles, inputs that no job writes and that do not exist, outputs and directories that two jobs
    have, jobs at other brokers. Nothing is written.

    Exit code 1 for a mistake.
    """
    require("lake", "a stream job")
    with Interruptions() as interruptions:
        if is_topology(file):
            if job is not None:
                raise click.UsageError("--job is for the file of a job; a topology is checked as a whole")
            mistakes = _check_topology(file, as_json=as_json)
        else:
            if as_json:
                raise click.UsageError("--json is for a topology")
            found = loaded(file, job)
            with failing(found.name):
                found.check()
            say(f"{file}: job {found.name}: nothing found")
            mistakes = 0
        interruptions.done = True
    if mistakes:
        click.get_current_context().exit(FAILED)


def _check_topology(file: Path, *, as_json: bool) -> int:
    """How many mistakes there are."""
    from moldau.streams.topology_checks import feeders, stages
    from moldau.streams.topology_loading import load_topology

    topology = opened(file)
    with failing(topology.name):
        found = load_topology(topology)
    if as_json:
        after = feeders(found.jobs)
        print_json(
            {
                "name": topology.name,
                "findings": [
                    {"file": each.file, "line": each.line, "check": each.check.value, "text": each.text} for each in found.findings
                ],
                "jobs": [
                    {"name": each.name, "inputs": list(each.inputs), "outputs": list(each.outputs), "after": after[each.name]}
                    for each in found.jobs
                ],
                "stages": stages(found.jobs),
            }
        )
    else:
        for each in found.findings:
            say(str(each))
        if not found.findings:
            say(f"{file}: nothing found; jobs in order: {', '.join(name for stage in stages(found.jobs) for name in stage)}")
    return len(found.findings)
