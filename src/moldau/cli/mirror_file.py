"""The file of a mirror as an argument of commands, and the client that orders in its name."""

import getpass
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from moldau.cli.options import ExistingPath
from moldau.cli.output import visible

if TYPE_CHECKING:
    from moldau.mirror.operator import Operator
    from moldau.mirror.plan.values import MirrorPlan

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
FILE = ExistingPath(dir_okay=False, path_type=Path)


def file_argument(function: F) -> F:
    """``FILE``, as the parameter `file`."""
    return click.argument("file", type=FILE)(function)


def plan_of(file: Path) -> "MirrorPlan":
    """What the file says. click.BadParameter names file and line of an error."""
    from moldau.mirror.plan.file import read_plan
    from moldau.model.toml_table import PlanFileError

    try:
        return read_plan(file)
    except PlanFileError as error:
        raise click.BadParameter(visible(str(error)), param_hint="FILE") from error


def as_operator(plan: "MirrorPlan", timeout_s: float, work: "Callable[[Operator], Awaitable[T]]") -> T:
    """Do something as an operator of the mirror."""
    from moldau.mirror.operator import operate

    return operate(plan, _operator_name(), timeout_s, work)


def _operator_name() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
