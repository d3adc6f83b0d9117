"""Tables at addresses of object stores, for commands."""

from typing import Any

import click

from moldau.cli.options import ExistingPath
from moldau.model.extras import MissingExtraError


class StorageOption(click.ParamType[str]):
    """``NAME=VALUE``, put into the environment."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name; a usage error does not show the value, which may be a secret."""
        name, equals, text = str(value).partition("=")
        if not name or not equals:
            self.fail("a setting is NAME=VALUE", param, ctx)
        try:
            from moldau.lake.tables.places.options import set_option

            set_option(name, text)
        except ModuleNotFoundError as error:
            raise MissingExtraError("a table in an object store", error.name or str(error), "lake") from error
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return name


storage_option = click.option(
    "--storage-option",
    metavar="NAME=VALUE",
    type=StorageOption(),
    multiple=True,
    expose_value=False,
    help="For tables at s3://, as often as needed: region=eu-central-1. Overrides AWS_REGION and so on.",
)


class TablePath(ExistingPath):
    """A directory that exists, or an address."""

    def __init__(self) -> None:
        super().__init__(file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As it is."""
        return value if "://" in str(value) else super().convert(value, param, ctx)
