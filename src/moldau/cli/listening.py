"""The error for an address that cannot be listened on, for every command that has one."""

import errno

import click


def listen_error(text: str, error: OSError, option: str) -> click.ClickException:
    """`text`, and where another process has the address what to do; `option` of the command chooses another one."""
    if error.errno == errno.EADDRINUSE:
        text = f"{text}; stop the process that listens there, or choose another address with {option}"
    return click.ClickException(text)
