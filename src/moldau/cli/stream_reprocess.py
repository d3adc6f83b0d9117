"""``moldau stream reprocess`` and ``switch``: a job's outputs made again beside the running job, which they then replace."""

from pathlib import Path

import click

from moldau.cli.exit_codes import DONE
from moldau.cli.interruptions import Interruptions
from moldau.cli.options import SECONDS, TEXT, TIME, ExistingPath, bootstrap_option
from moldau.cli.output import say
from moldau.cli.stream_run import failing, loaded
from moldau.model.extras import require

_FORMS = "earliest, a time (2013-07-02, 30d), or offsets as JSON"


@click.command("reprocess")
@click.argument("file", metavar="FILE", type=ExistingPath(path_type=Path, dir_okay=False))
@click.option("--from", "origin", metavar="WHERE", type=TEXT, help=f"Where it begins in the topics: {_FORMS}.  [default: earliest]")
@click.option("--from-savepoint", "savepoint", metavar="DIR", type=TEXT, help="Begin with the state and positions of a savepoint.")
@click.option("--job", metavar="NAME", type=TEXT, help="Which job, of a file that makes several.")
@click.option("--switch/--no-switch", default=True, show_default=True, help="When it has caught up, or at the command `switch`.")
@click.option("--once", is_flag=True, help="End after the switch; `moldau stream run` continues.")
@click.option("--fresh", is_flag=True, help="Leave what an earlier command has begun, and begin another generation.")
@click.option("--whole", is_flag=True, help="Switch to a job that cannot stop in order: readers get the whole output.")
def reprocess(
    file: Path, origin: str | None, savepoint: str | None, job: str | None, switch: bool, once: bool, fresh: bool, whole: bool
) -> None:
    """Make the outputs of the StreamJob of FILE again, beside the running job, and switch to them when they have caught up.

    The file may differ from the one that runs. The new generation has checkpoints and outputs of its own (topic.v2, table.v2). At the
    switch both stand at the same offsets of their inputs, the outputs are exchanged in one step, and this process runs as the job. The same
    command continues after a crash. How readers follow: docs/streams-reprocessing.md.

    \b
      moldau stream reprocess flights_per_hour.py --from 2013-01-01
    """
    if origin is not None and savepoint is not None:
        raise click.UsageError("--from and --from-savepoint exclude each other")
    start = beginning(origin or "earliest")
    require("lake", "a stream job")
    with Interruptions() as interruptions:
        found = loaded(file, job)
        interruptions.on_stop = found.stop
        with failing(found.name):
            found.reprocess(start, origin=origin, savepoint=savepoint, switch=switch, once=once, fresh=fresh, whole=whole, tell=say)
        interruptions.done = True
    say(f"job {found.name}: stopped" if interruptions.requested or not once else f"job {found.name}: done")
    click.get_current_context().exit(DONE)


def beginning(text: str) -> str | int | dict[str, dict[str, int]]:
    """Where it begins. BadParameter."""
    from moldau.lake.reading.offsets import OptionError, parse_numbers

    if text == "earliest":
        return text
    if not text.startswith("{"):
        return TIME.convert(text, None, None)
    try:
        numbers = parse_numbers("--from", text)
    except OptionError as error:
        raise click.BadParameter(str(error).removeprefix("option --from: "), param_hint="--from") from error
    found: dict[str, dict[str, int]] = {}
    for partition, offset in numbers.items():
        found.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return found


@click.command("switch")
@click.argument("job", metavar="JOB", type=TEXT)
@bootstrap_option
@click.option("--timeout", metavar="SECONDS", type=SECONDS, default=600.0, show_default=True, help="How long to wait for it.")
def switch(job: str, bootstrap: str, timeout: float) -> None:
    """Have the process that reprocesses JOB with --no-switch switch when it has caught up, and wait for it."""
    require("lake", "an order to a stream job")
    from moldau.streams.operator import StreamOperator

    operator = StreamOperator(bootstrap)
    try:
        generation = operator.switch(job, timeout)
    finally:
        operator.close()
    say(f"job {job}: switched to generation {generation}")
