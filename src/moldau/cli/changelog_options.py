"""What the commands of changelogs have in common."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from moldau.changelog.places import PlaceError, StorePlace, parse_place
from moldau.cli.options import TextType

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


STORE = Place()
SHARD = click.IntRange(0, SHARDS_MAX - 1)


def changelog_argument(function: F) -> F:
    """``CHANGELOG``, as the parameter `changelog`."""
    return click.argument("changelog", metavar="CHANGELOG", type=ChangelogName(may_be_empty=False))(function)


def log_level_option(function: F) -> F:
    """``--log-level``, as the parameter `log_level`."""
    return click.option("--log-level", type=click.Choice(LOG_LEVELS), default="warning", show_default=True)(function)
