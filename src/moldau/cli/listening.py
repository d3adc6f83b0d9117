"""Addresses to listen on: what commands share about them, and the error for one that cannot be listened on."""

import errno

import click

from moldau.model.host_port import parse_host_port

METRICS_DEFAULT = "127.0.0.1:9404"
"""Where metrics are served: the port that jmx_exporter usually has beside a Kafka."""


def host_port(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """``HOST:PORT``, checked; port 0 means any free one, an empty host every interface."""
    if value is not None:
        try:
            parse_host_port(value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, parameter) from error
    return value


def connectable(host: str, port: int) -> str:
    """An address that this machine reaches a listener at."""
    local = "127.0.0.1" if host in ("", "0.0.0.0", "*", "::") else host
    return f"[{local}]:{port}" if ":" in local else f"{local}:{port}"


def listen_error(text: str, error: OSError, option: str) -> click.ClickException:
    """`text`, and where another process has the address what to do; `option` of the command chooses another one."""
    if error.errno == errno.EADDRINUSE:
        text = f"{text}; stop the process that listens there, or choose another address with {option}"
    return click.ClickException(text)
