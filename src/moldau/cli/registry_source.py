"""Where the address of a schema registry came from: the line that says what is wrong with it names that too.

A variable that was set long ago is the last thing that somebody looks at who has given no option.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import click
from click.core import ParameterSource

OPTION = "--registry"
_UNKNOWN_PATH = (404, 405)
"""Codes of another server, which knows no path of a registry: a registry's own say what it is that was not found, as 40401."""


def registry_source(ctx: click.Context) -> str:
    """The option of this command, the variable that stood for it, or the option's default, where it has one."""
    from moldau.cli.options import REGISTRY_VARIABLE

    given = ctx.get_parameter_source("registry")
    if given is ParameterSource.DEFAULT and ctx.params["registry"] is not None:
        return f"the default of {OPTION}"
    return REGISTRY_VARIABLE if given is ParameterSource.ENVIRONMENT else OPTION


def check_registry_url(url: str, source: str) -> None:
    """click.BadParameter for what is no address of a registry."""
    from moldau.registry.rest_connection import parse_urls

    try:
        parse_urls(url)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=source) from error


@contextmanager
def naming_source(source: str) -> Iterator[None]:
    """Errors of an address where no registry answers, or a broken one, name `source`; what a registry refuses (4xx) does not."""
    from moldau.registry.client_errors import RegistryError, RegistryUnavailableError

    try:
        yield
    except RegistryUnavailableError as error:
        raise RegistryUnavailableError(f"{error} (its address is from {source})") from error
    except RegistryError as error:
        if 400 <= error.status < 500 and error.code not in _UNKNOWN_PATH:
            raise
        raise RegistryError(error.status, error.code, f"{error.message.rstrip('.')}; the registry's address is from {source}") from error
