"""What the commands of changelogs have in common."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from moldau.changelog.errors import ChangelogError
from moldau.changelog.places import PlaceError, StorePlace, parse_place
from moldau.changelog.values import ALL_SHARDS
from moldau.cli.options import TextType
from moldau.cli.output import visible

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])

SHARDS_MAX: Final = 2**31 - 1
LOG_LEVELS: Final = ("debug", "info", "warning", "error")


class ChangelogName(TextType):
    """A changelog's name, which shells complete."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        """Those that have a topic of commits."""
        from moldau.cli.existing_names import changelog_names

        return changelog_names(ctx, incomplete)


class Place(click.ParamType[StorePlace]):
    """The address of a store."""

    name = "STORE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> StorePlace:
        """The address, or a usage error."""
        try:
            return value if isinstance(value, StorePlace) else parse_place(str(value))
        except PlaceError as error:
            self.fail(str(error), param, ctx)


class ShardOrAll(click.IntRange):
    """The number of a shard, or `all`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; `ALL_SHARDS` for `all`."""
        return ALL_SHARDS if value == "all" else super().convert(value, param, ctx)


STORE = Place()
SHARD = click.IntRange(0, SHARDS_MAX - 1)
SHARD_OR_ALL = ShardOrAll(0, SHARDS_MAX - 1)
_OPTIONS: Final = {
    "begin_again": "--begin-again",
    "(republish)": "(--republish lost)",
    "(republish now)": "(--republish now)",
    " or choose another name (slot)": " or publish under another name",
    "as_text = ": "--as-text ",
    "open it with sharded=True": "take another store, or name one --shard",
}
"""Of the library, as messages name them, and of the commands."""


@contextmanager
def options_as_given(command: str = "") -> Iterator[None]:
    """Failures inside name options as they are given on the command line; those of another `command` with its name."""
    try:
        yield
    except ChangelogError as error:
        message = str(error)
        for name, option in _OPTIONS.items():
            message = message.replace(name, f"`{command} {option}`" if command else option)
        raise click.ClickException(visible(message)) from error


def changelog_argument(function: F) -> F:
    """``CHANGELOG``, as the parameter `changelog`."""
    return click.argument("changelog", metavar="CHANGELOG", type=ChangelogName(may_be_empty=False))(function)


def log_level_option(function: F) -> F:
    """``--log-level``, as the parameter `log_level`."""
    return click.option("--log-level", type=click.Choice(LOG_LEVELS), default="warning", show_default=True)(function)
