"""``moldau mirror run``: a process of a mirror."""

import re
from pathlib import Path

import click

_INSTANCE = re.compile(r"[A-Za-z0-9_-]{1,100}")


def _instance_name(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if not _INSTANCE.fullmatch(value):
        raise click.BadParameter(f"{value!r}: 1 to 100 letters, digits, _ and -", ctx, parameter)
    return value


@click.command("run")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
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
def run(file: Path, instance: str, log_level: str, log_format: str) -> None:
    """Mirror topics as FILE says, until SIGTERM or Ctrl-C.

    Killed at any moment and started again, it neither misses nor doubles a record. A second process with the same instance name takes over,
    and the first one ends with exit code 1.
    """
    from moldau.assembly.server_log import set_up_logging
    from moldau.mirror.plan.file import read_plan
    from moldau.mirror.running import run_mirror
    from moldau.model.toml_table import PlanFileError

    set_up_logging(log_level, log_format)
    try:
        plan = read_plan(file)
    except PlanFileError as error:
        raise click.ClickException(str(error)) from error
    sources = ", ".join(source.name for source in plan.sources)
    run_mirror(plan, instance, lambda: click.echo(f"mirror {plan.name} ({plan.mode.value} of {sources}) runs as instance {instance}"))
