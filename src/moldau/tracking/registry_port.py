"""What producers and consumers of tracked events need of a schema registry; `moldau.registry.client.RegistryClient` has it."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol


class FoundSchema(Protocol):
    """A schema out of the registry. Besides this it knows what it refers to, for `SchemaRegistry.referenced`."""

    @property
    def type(self) -> str:
        """AVRO, JSON or PROTOBUF."""

    @property
    def text(self) -> str:
        """The schema."""


class SchemaRegistry(Protocol):
    """Any thread may use it. Its errors name subject or id."""

    def register(self, subject: str, text: str) -> int:
        """The id of an Avro schema, which is the subject's newest now unless it was there already."""

    def lookup(self, subject: str, text: str) -> Any:
        """What the subject knows of this schema, with its `id`; raises if it is not one of the subject's."""

    def schema(self, schema_id: int) -> Any:
        """The schema of an id; a `FoundSchema`."""

    def referenced(self, schema: Any) -> Iterable[FoundSchema]:
        """The schemas that it refers to, each after those that it needs itself."""


def open_registry(registry: "str | SchemaRegistry") -> "tuple[SchemaRegistry, Callable[[], None]]":
    """A client for a URL, and what closes it; what is a registry already stays as it is, and open. ValueError for what is neither."""
    if not isinstance(registry, str):
        if not callable(getattr(registry, "schema", None)):
            raise ValueError(f"registry is the URL of one (http://HOST:PORT) or a client of one, not {registry!r}")
        return registry, lambda: None
    from moldau.registry.client import RegistryClient

    client = RegistryClient(registry)
    return client, client.close
