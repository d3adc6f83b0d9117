"""What the commands of tiers share: their directory, and the file with its errors."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from moldau.tiers.values import Tiers

F = TypeVar("F", bound=Callable[..., Any])
DIRECTORY = "moldau-tiers"


def data_option(function: F) -> F:
    """``--data DIR``."""
    decorate = click.option(
        "--data", "directory", metavar="DIR", default=DIRECTORY, show_default=True, help="Directory of the tiers' data, logs and state."
    )
    return decorate(function)


def file_argument(function: F) -> F:
    """The file of tiers."""
    return click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))(function)


def opened(file: Path) -> "Tiers":
    """The tiers of a file. click.ClickException with file and line."""
    from moldau.model.toml_table import PlanFileError
    from moldau.tiers.file import read_tiers

    try:
        return read_tiers(file)
    except PlanFileError as error:
        raise click.ClickException(str(error)) from error
