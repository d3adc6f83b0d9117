"""Addresses of tables: paths of directories, and ``s3://BUCKET/PREFIX``."""

import os
import re
from functools import lru_cache
from urllib.parse import urlsplit

from moldau.lake.tables.places.local import LocalPlace
from moldau.lake.tables.places.place import Place

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_STORE = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:/[A-Za-z0-9!'()*._=@+-]+)*/?")
VARIABLES = "AWS_"
"""The environment's names of settings begin so: credentials, region, endpoint."""


def place_of(address: str) -> Place:
    """The place at an address. ValueError for one that is neither a path nor of an object store that tables can lie in."""
    if not is_address(address):
        return LocalPlace(address)
    problem = unfit(address)
    if problem is not None:
        raise ValueError(problem)
    return _stored(address, tuple(sorted(store_settings().items())))


@lru_cache(maxsize=256)
def _stored(address: str, _settings: tuple[tuple[str, str], ...]) -> Place:
    """Each has connections; with other settings it is another one."""
    from moldau.lake.tables.places.objects import ObjectPlace

    parts = urlsplit(address)
    return ObjectPlace(address, parts.netloc, parts.path.strip("/"))


def is_address(address: str) -> bool:
    """Whether this is an address, and no path."""
    return _ADDRESS.match(address) is not None


def unfit(address: str) -> str | None:
    """Why no table can lie at an address with ``://``; None if one can."""
    if not address.startswith("s3://"):
        return f"{address}: tables lie in directories of this machine or at s3://BUCKET/PREFIX; nothing here can write to this address"
    if not _STORE.fullmatch(address) or any(part in (".", "..") for part in address.split("/")):
        return f"{address}: not an address s3://BUCKET/PREFIX of letters, digits and !'()*._=@+- between slashes"
    return None


def absolute(address: str) -> str:
    """An address that is the same for all names of a place, as far as names go."""
    return address.rstrip("/") if is_address(address) else os.path.abspath(address)


def joined(address: str, *parts: str) -> str:
    """The address of what is below another one."""
    return os.path.join(address, *parts)


def one_in_the_other(one: str, other: str) -> bool:
    """Whether two addresses are the same, or one lies below the other."""
    first, second = (f"{absolute(each).rstrip('/')}/" for each in (one, other))
    return first.startswith(second) or second.startswith(first)


def store_settings() -> dict[str, str]:
    """The settings of object stores in this process's environment. Secrets are among them."""
    return {name: value for name, value in os.environ.items() if name.startswith(VARIABLES)}


class StoreSettings:
    """The settings of a driver, for its tasks. No text of it has them."""

    def __init__(self, values: dict[str, str]) -> None:
        self._values = values

    @classmethod
    def of_driver(cls, *addresses: str | None) -> "StoreSettings":
        """Those of this process, if one of these is the address of an object store."""
        return cls(store_settings() if any(each is not None and is_address(each) for each in addresses) else {})

    def follow(self) -> None:
        """In a task: use the driver's."""
        os.environ.update(self._values)


NO_SETTINGS = StoreSettings({})
"""Of a table in a directory."""
