"""The names of an Avro schema: a name may be used before the place where it is defined, and the same definition may stand twice."""

from collections.abc import Callable

from moldau.registry.schemas.avro.place import Place
from moldau.registry.schemas.avro.printer import printed
from moldau.registry.schemas.avro.types import AvroType, NamedType
from moldau.registry.schemas.language import InvalidSchemaError


class _Awaited(AvroType):
    """A name whose definition has not been met yet; it is replaced before anybody sees it."""


class Definitions:
    """Of one text. `names` holds the types known so far, those of the references too."""

    def __init__(self, names: dict[str, NamedType]) -> None:
        self._names = names
        self._awaited: list[tuple[str, str, Callable[[AvroType], None], str]] = []

    def find(self, name: str, namespace: str) -> NamedType | None:
        """What a name stands for in a namespace, as far as it is known."""
        return self._names.get(_qualified(name, namespace)) or self._names.get(name)

    def await_one(self, name: str, namespace: str, put: Callable[[AvroType], None], place: str) -> AvroType:
        """Something for a name that is not known at `place`; `find_awaited` puts the type instead of it."""
        self._awaited.append((name, namespace, put, place))
        return _Awaited(kind=name)

    def find_awaited(self) -> None:
        """The text is at its end. InvalidSchemaError for a name that nobody has defined."""
        for name, namespace, put, place in self._awaited:
            known = self.find(name, namespace)
            if known is None:
                raise InvalidSchemaError(f"Unknown type {_qualified(name, namespace)!r} at {place}")
            put(known)

    def define(self, named: NamedType) -> NamedType | None:
        """Make the name known, and give back what it stood for before."""
        before = self._names.get(named.full_name)
        self._names[named.full_name] = named
        return before

    def same(self, before: NamedType | None, again: NamedType, place: Place) -> NamedType:
        """What a name stands for after a definition; a second definition must say the same as the first."""
        if before is None:
            return again
        if printed(before) != printed(again):
            place.refuse(f"the name {again.full_name!r} is defined twice, each time differently")
        self._names[again.full_name] = before
        return before


def _qualified(name: str, namespace: str) -> str:
    return f"{namespace}.{name}" if namespace and "." not in name else name
