"""Options that many commands share, and the values they read."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


def bootstrap_option(function: F) -> F:
    """``--bootstrap HOST:PORT``, as the parameter `bootstrap`."""
    return click.option(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT",
        envvar="MOLDAU_BOOTSTRAP",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        show_envvar=True,
        callback=_check_bootstrap,
        help="A broker to ask; several are separated by commas.",
    )(function)


def json_option(function: F) -> F:
    """``--json``, as the parameter `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(function)


def timeout_option(default_s: float) -> Callable[[F], F]:
    """``--timeout SECONDS``, as the parameter `timeout`."""
    return click.option(
        "--timeout",
        metavar="SECONDS",
        type=click.FloatRange(min=0.1),
        default=default_s,
        show_default=True,
        help="How long to wait for a broker before giving up.",
    )


def config_option(*names: str, help_: str) -> Callable[[F], F]:
    """A repeatable ``--config NAME=VALUE``; the parameter is a dict."""
    return click.option(*names, metavar="NAME=VALUE", multiple=True, callback=_pairs, help=help_)


def open_cluster(bootstrap: str, timeout_s: float = 10.0) -> "Cluster":
    """A client for one command; nothing is connected yet."""
    from moldau.client.cluster import Cluster

    return Cluster(bootstrap, client_id="moldau-cli", timeout_s=timeout_s)


def _check_bootstrap(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    from moldau.client.address import parse_addresses

    try:
        parse_addresses(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, parameter) from error
    return value


def _pairs(ctx: click.Context, parameter: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", ctx, parameter)
        if name.strip() in pairs:
            raise click.BadParameter(f"{name.strip()} is given twice", ctx, parameter)
        pairs[name.strip()] = value
    return pairs
