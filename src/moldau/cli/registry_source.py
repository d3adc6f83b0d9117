"""Where the address of a schema registry came from: the line that says what is wrong with it names that too.

A variable that was set long ago is the last thing that somebody looks at who has given no option.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import click
from click.core import ParameterSource

OPTION = "--registry"


def registry_source(ctx: click.Context) -> str:
    """The option of this command, or the variable that stood for it."""
    from moldau.cli.options import REGISTRY_VARIABLE

    return REGISTRY_VARIABLE if ctx.get_parameter_source("registry") is ParameterSource.ENVIRONMENT else OPTION


def check_registry_url(url: str, source: str) -> None:
    """click.BadParameter for what is no address of a registry."""
    from moldau.registry.rest_connection import parse_urls

    try:
        parse_urls(url)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=source) from error


@contextmanager
def naming_source(source: str) -> Iterator[None]:
    """What a registry does not answer, or answers wrongly, in here is told with `source`; not that it lacks a subject or a version."""
    from moldau.registry.client_errors import SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, RegistryError, RegistryUnavailableError

    try:
        yield
    except RegistryUnavailableError as error:
        raise RegistryUnavailableError(f"{error} (its address is from {source})") from error
    except RegistryError as error:
        if error.code in (SUBJECT_NOT_FOUND, VERSION_NOT_FOUND):
            raise
        raise RegistryError(error.status, error.code, f"{error.message.rstrip('.')}; the registry's address is from {source}") from error
