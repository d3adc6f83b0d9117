"""A click group whose commands are imported when they are called, not when ``moldau`` starts.

``moldau topic list`` has 0.4 s for everything, so it must not pay for what ``produce`` or ``demo`` need. The table of a group gives every
command a line of help too: ``moldau --help`` imports none of them.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click


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
