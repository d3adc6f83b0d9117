"""``moldau stream stop``: an order to the process of a job, or to those of a topology."""

import signal
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from moldau.cli.options import SECONDS, TEXT, bootstrap_option
from moldau.cli.output import say
from moldau.cli.stream_topology import is_topology, opened

if TYPE_CHECKING:
    from moldau.streams.operator import StreamOperator

_LOOK_S = 0.1


@click.command("stop")
@click.argument("job", metavar="JOB|TOPOLOGY", type=TEXT)
@bootstrap_option
@click.option("--data", "directory", metavar="DIR", type=TEXT, help="The one of `moldau stream run TOPOLOGY`.")
@click.option("--timeout", metavar="SECONDS", type=SECONDS, default=60.0, show_default=True, help="How long to wait until it has stopped.")
def stop(job: str, bootstrap: str, directory: str | None, timeout: float) -> None:
    """Have the process of JOB stop at the end of its batch, on whatever host it runs, and wait for it.

    Of a TOPOLOGY (TOML) all jobs are stopped, at its brokers: where `moldau stream run` runs it on this host by that, those that feed
    others first; otherwise one after the other. A job that does not run is no error.
    """
    from moldau.model.extras import require

    require("lake", "an order to a stream job")
    from moldau.streams.operator import StreamOperator

    if is_topology(job):
        _stop_topology(job, directory, timeout)
        return
    if directory is not None:
        raise click.UsageError("--data is for a topology")
    operator = StreamOperator(bootstrap)
    try:
        _stop_job(operator, job, timeout)
    finally:
        operator.close()


def _stop_topology(file: str, directory: str | None, timeout_s: float) -> None:
    from moldau.adapters.process_identity import send_signal
    from moldau.streams.operator import StreamOperator
    from moldau.streams.topology_state import default_directory, read_process

    topology = opened(file)
    process = read_process(directory or default_directory(topology))
    if process is not None and process.name == topology.name and process.runs:
        send_signal(process.process, signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        while process.runs:
            if time.monotonic() > deadline:
                raise click.ClickException(
                    f"topology {topology.name}: process {process.pid} has not stopped within {timeout_s:g} s; each job stops at the end of "
                    f"its batch"
                )
            time.sleep(_LOOK_S)
    operator = StreamOperator(topology.bootstrap)
    try:
        known = operator.jobs()
        for job in topology.jobs:
            if job.name in known:
                _stop_job(operator, job.name, timeout_s)
            else:
                say(f"job {job.name}: has never run")
    finally:
        operator.close()


def _stop_job(operator: "StreamOperator", job: str, timeout_s: float) -> None:
    report = operator.stop(job, timeout_s)
    when = datetime.fromtimestamp(report.at_ms / 1000, UTC).strftime("%F %T UTC")
    say(f"job {job}: {report.who}: {report.state.value} at {when}")
