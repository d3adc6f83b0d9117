"""What a JSON Schema says, sorted by what it speaks of: the form in which two of them are compared.

A JSON Schema may speak of everything at once. Here each node speaks of one thing: of strings, of objects, of a list of allowed
values. An object of several such parts (`{"type": "string", "enum": [...]}`) is a node of kind COMBINED with the criterion `allOf`,
and a list of types is one with `anyOf`. A node reads its children when they are asked for, and the same JSON object gives the same
node each time, so that a recursive schema is a circle of nodes, compared by identity.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

ALL_OF, ANY_OF, ONE_OF = "allOf", "anyOf", "oneOf"


class Kind(Enum):
    """What a node speaks of."""

    EMPTY = auto()
    """Everything is valid: `{}` and `true`."""
    FALSE = auto()
    STRING = auto()
    NUMBER = auto()
    BOOLEAN = auto()
    NULL = auto()
    OBJECT = auto()
    ARRAY = auto()
    ENUM = auto()
    CONST = auto()
    COMBINED = auto()
    NOT = auto()
    CONDITIONAL = auto()


def _no_child(value: Any) -> "Node":
    raise AssertionError(f"a node without keywords has no child {value}")


@dataclass(eq=False, slots=True)
class Node:
    """A schema of one kind; `keywords` is the JSON object it comes from, empty for `true` and `false`.

    `annotations` are `title`, `description`, `default` and the like; only the node of the whole object has them, not its parts.
    """

    kind: Kind
    keywords: dict[str, Any] = field(default_factory=dict)
    annotations: dict[str, Any] = field(default_factory=dict)
    child: Callable[[Any], "Node"] = _no_child
    """The node of a schema found among the keywords."""
    modern: bool = False
    """Of draft 2019-09 or later, where some keywords mean something that did not before."""

    def children(self, keyword: str) -> dict[str, "Node"]:
        """The nodes under a keyword that holds schemas by name."""
        return {name: self.child(value) for name, value in self.keywords.get(keyword, {}).items()}

    def optional(self, keyword: str) -> "Node | None":
        """The node under a keyword that holds a schema; None if the keyword is missing."""
        return self.child(self.keywords[keyword]) if keyword in self.keywords else None


@dataclass(eq=False, slots=True)
class CombinedNode(Node):
    """Several schemas of which all, any or exactly one must hold; equal ones stand once."""

    criterion: str = ALL_OF
    read_parts: Callable[[], list[Node]] = list
    _parts: list[Node] | None = None

    @property
    def parts(self) -> list[Node]:
        """The schemas that are combined, those that are combined themselves first."""
        if self._parts is None:
            self._parts = sorted(self.read_parts(), key=lambda part: part.kind is not Kind.COMBINED)
        return self._parts
