"""The table of commands, each imported when it is called, and how every command ends.

``moldau topic list`` has 0.4 s for everything, so it must not pay for what ``produce`` or ``demo`` need. The table of a group gives every
command a line of help too: ``moldau --help`` imports none of them.

`moldau.cli.exit_codes` has the exit codes. A failure that is not our bug is one line on standard error; our bug is
a traceback.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click

from moldau import __version__
from moldau.cli.exit_codes import INTERRUPTED
from moldau.cli.output import visible
from moldau.model.errors import MoldauError, PeerError, ProtocolError


class LazyCommand(NamedTuple):
    """Where a command is, and what it does in one line."""

    module: str
    attribute: str
    help: str


class LazyGroup(click.Group):
    """A group with commands by name in `lazy`, listed in that order."""

    def __init__(self, *arguments: Any, lazy: Mapping[str, LazyCommand], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command itself, imported now."""
        entry = self._lazy.get(cmd_name)
        if entry is None:
            return None
        command = getattr(import_module(entry.module), entry.attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names; click looks for similar names only among those that are imported."""
        if args[0] not in self._lazy and not args[0].startswith("-"):
            raise click.NoSuchCommand(args[0], possibilities=self._lazy, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands in the help text, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self._lazy.items()])


COMMANDS = {
    "serve": LazyCommand("moldau.cli.serve", "serve", "Run a broker."),
    "status": LazyCommand("moldau.cli.status", "status", "Show how a broker stands, from its metrics."),
    "topic": LazyCommand("moldau.cli.topic", "topic", "Create, list, describe, alter, trim and delete topics."),
    "produce": LazyCommand("moldau.cli.produce", "produce", "Send the lines of a file to a topic: text, JSON or CSV."),
    "consume": LazyCommand("moldau.cli.consume", "consume", "Print the records of a topic."),
    "group": LazyCommand("moldau.cli.group", "group", "List, describe, reset and delete consumer groups."),
    "config": LazyCommand("moldau.cli.config", "config", "Show and change settings of topics and brokers."),
    "audit": LazyCommand("moldau.cli.audit", "audit", "Count what went through, and name what is missing or doubled."),
    "load": LazyCommand("moldau.cli.load", "load_command", "Load topics into lake tables, each event once."),
    "lake": LazyCommand("moldau.cli.lake", "lake", "Wait until a table is complete, and name and repair what is wrong with it."),
    "mirror": LazyCommand("moldau.cli.mirror", "mirror", "Keep topics of one cluster in another, each record once."),
    "stream": LazyCommand("moldau.cli.stream", "stream", "Run stream jobs on Spark, show how they stand, stop them."),
    "spark": LazyCommand("moldau.cli.spark", "spark", "Make Spark start faster on this host."),
    "changelog": LazyCommand("moldau.cli.changelog", "changelog", "Publish the changes of a database, and keep replicas of it."),
    "partition": LazyCommand("moldau.cli.partition", "partition", "Move replicas between brokers, elect leaders, even out both."),
    "broker": LazyCommand("moldau.cli.broker", "broker", "Drain a broker: of leaders, or of everything."),
    "cluster": LazyCommand("moldau.cli.cluster", "cluster", "Run a cluster of brokers on this host, kill and restart them."),
    "tiers": LazyCommand("moldau.cli.tiers", "tiers", "Run clusters, mirrors and auditors on this host as a file says, and check it."),
    "probe": LazyCommand("moldau.cli.probe", "probe", "Measure availability and latency of each broker, and over mirrors."),
    "zookeeper": LazyCommand("moldau.cli.zookeeper", "zookeeper", "Run a ZooKeeper server for brokers that use one."),
    "registry": LazyCommand("moldau.cli.registry", "registry", "Run a schema registry."),
    "schema": LazyCommand("moldau.cli.schema", "schema", "List, get, register, check and delete schemas of a registry."),
    "log": LazyCommand("moldau.cli.log", "log", "Look into the files of a log, without a broker."),
    "completion": LazyCommand("moldau.cli.completion", "completion", "Print the script that makes a shell complete commands and names."),
    "demo": LazyCommand("moldau.cli.demo", "demo", "Run the whole pipeline over real events, and let the audit check that all arrived."),
}


_OPTIONS_OF_COMMANDS = ("-b", "--bootstrap", "--json", "--registry", "--timeout")
"""Those of nearly all commands, which other tools take before the command too."""


class Application(LazyGroup):
    """The outermost group: turns our error families into one line and an exit code."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """What is left for the command. An error for an option that belongs after it."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            _check_place(error)
            raise

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; whatever is not our bug ends as a message."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            _check_place(error)
            raise
        except click.UsageError:
            raise
        except click.ClickException as error:
            raise _one_line(error.message) from error
        except ProtocolError as error:
            raise _one_line(error.message) from error
        except PeerError as error:
            raise _one_line(f"{error.code.name}: {error.message}") from error
        except MoldauError as error:
            raise _one_line(str(error)) from error
        except ValueError as error:
            from moldau.protocol.codec.primitives import UnencodableError

            if not isinstance(error, UnencodableError):
                raise
            raise _one_line(f"this cannot be sent to a broker: {error}") from error
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)


def _check_place(error: click.NoSuchOption) -> None:
    """click.NoSuchOption with the place where the option goes, if it is one of commands and was given to a group of them."""
    if error.option_name in _OPTIONS_OF_COMMANDS and error.ctx is not None and isinstance(error.ctx.command, click.Group):
        message = f"{error.message} Options follow the command that they are for: moldau topic list --bootstrap HOST:PORT"
        raise click.NoSuchOption(error.option_name, message, ctx=error.ctx) from error


def _one_line(message: str) -> click.ClickException:
    return click.ClickException(visible(message))


@click.group(
    cls=Application,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Every command has --help. Exit codes: 0 done, 1 failed, 2 wrong arguments, 130 interrupted; audits, waits: 3 not decided yet, "
    "4 loss or duplication; mirrors: 6 a partition has halted, 7 no process reports,"
    " 8 offsets not translated, 9 retrying for more than a minute.",
)
@click.version_option(__version__, prog_name="moldau", message="%(prog)s %(version)s")
def application() -> None:
    """Moldau: a distributed log that speaks the Apache Kafka protocol.

    \b
    A first minute, in two terminals:
      moldau serve
      moldau topic create events --partitions 3
      printf 'one\\ntwo\\n' | moldau produce events
      moldau consume events --until-end
    """
