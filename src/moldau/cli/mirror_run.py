"""``moldau mirror run``: a process of a mirror."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from moldau.cli.listening import METRICS_DEFAULT, host_port, listen_error
from moldau.cli.mirror_file import file_argument, plan_of
from moldau.model.host_port import parse_host_port

if TYPE_CHECKING:
    from moldau.cli.audit_beside import AuditorBeside
    from moldau.mirror.metrics import MirrorMetrics
    from moldau.mirror.plan.values import MirrorPlan

_INSTANCE = re.compile(r"[A-Za-z0-9_-]{1,100}")


def _instance_name(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if not _INSTANCE.fullmatch(value):
        raise click.BadParameter(f"{value!r}: 1 to 100 letters, digits, _ and -", ctx, parameter)
    return value


@click.command("run")
@file_argument
@click.option(
    "--instance",
    metavar="NAME",
    default="1",
    show_default=True,
    callback=_instance_name,
    help="The name of this process among those of the mirror. Processes with different names share the work.",
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="warning", show_default=True)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--metrics",
    metavar="[HOST:PORT]",
    is_flag=False,
    flag_value=METRICS_DEFAULT,
    callback=host_port,
    help=f"Serve /metrics for Prometheus; without an address on {METRICS_DEFAULT}.",
)
def run(file: Path, instance: str, log_level: str, log_format: str, metrics: str | None) -> None:
    """Mirror topics as FILE says, until SIGTERM or Ctrl-C.

    Killed at any moment and started again, it neither misses nor doubles a record. A second process with the same instance name takes over,
    and the first one ends with exit code 1. Exit code 2: FILE has a mistake, a source is the target's cluster, or two sources are one.
    """
    from moldau.assembly.server_log import set_up_logging
    from moldau.mirror.inventory import SameClusterError
    from moldau.mirror.running import run_mirror

    set_up_logging(log_level, log_format)
    plan = plan_of(file)
    endpoint = None if metrics is None else _endpoint(metrics)
    auditor = None if plan.audit_tier is None else _auditor(plan, plan.audit_tier)

    def announce() -> None:
        click.echo(f"mirror {plan.name} ({plan.mode.value} of {_sources(plan)}) runs as instance {instance}")
        if endpoint is not None:
            host, port = endpoint.address
            click.echo(f"metrics at http://{host}:{port}/metrics")

    try:
        run_mirror(plan, instance, announce, endpoint, auditor)
    except SameClusterError as error:
        raise click.BadParameter(f"{file}: {error}", param_hint="FILE") from error


def _sources(plan: "MirrorPlan") -> str:
    """The names of a merge's; the only one of a copy has none, but addresses."""
    from moldau.mirror.plan.values import Mode

    if plan.mode is Mode.MERGE:
        return ", ".join(source.name for source in plan.sources)
    return ",".join(f"{host}:{port}" for source in plan.sources for host, port in source.bootstrap_servers)


def _auditor(plan: "MirrorPlan", tier: str) -> "AuditorBeside":
    from moldau.model.extras import require

    require("tracking", "[audit] tier")
    from moldau.cli.audit_beside import AuditorBeside
    from moldau.mirror.audited import audited_topics

    return AuditorBeside(tier, audited_topics(plan), beside="mirror")


def _endpoint(listen: str) -> "MirrorMetrics":
    from moldau.model.extras import require

    require("metrics", "--metrics")
    from moldau.mirror.metrics import MirrorMetrics

    try:
        return MirrorMetrics(*parse_host_port(listen))
    except OSError as error:
        raise listen_error(f"cannot serve metrics: {(error.strerror or str(error)).lower()}", error, "--metrics") from error
