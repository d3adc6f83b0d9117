"""Where in the text of an Avro schema a reader is, for the errors it raises: `/fields/3/type/items`."""

from collections.abc import Iterable
from typing import NoReturn

from moldau.registry.schemas.language import InvalidSchemaError

PLACE_PARTS_MAX = 250
"""So many steps may lead to a type; a record within a record is three steps. No walk over a schema runs out of stack."""


def shown(parts: Iterable[object]) -> str:
    """The steps as a path."""
    return "/" + "/".join(map(str, parts))


class Place:
    """The steps from the root. Whoever enters a step leaves it, unless it refuses the schema."""

    def __init__(self) -> None:
        self.parts: list[str | int] = []

    def enter(self, part: str | int) -> None:
        """Go one step down."""
        self.parts.append(part)
        if len(self.parts) > PLACE_PARTS_MAX:
            raise InvalidSchemaError(f"The Avro schema is nested too deeply: more than {PLACE_PARTS_MAX} steps")

    def leave(self) -> None:
        """Go back up."""
        self.parts.pop()

    def refuse(self, fault: str) -> NoReturn:
        """InvalidSchemaError with the fault and the place."""
        raise InvalidSchemaError(f"Invalid Avro schema at {self}: {fault}")

    def __str__(self) -> str:
        return shown(self.parts)
