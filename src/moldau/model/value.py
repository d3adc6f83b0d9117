"""Values with named fields, for classes of which there are many and instances few: messages, events, changes.

As `NamedTuple` makes them, but that compiles a constructor for each class. It takes five times as long, 0.1 ms, and a start makes a hundred
of these classes. An instance of a `Value` takes 0.2 us more to make than one of a `NamedTuple`, which is for what is made often.
"""

import sys
from collections import _tuplegetter  # type: ignore[attr-defined]  # reads twice as fast as a property, as in a NamedTuple
from typing import Any, Self, dataclass_transform

_NO_DEFAULTS: dict[str, object] = {}
_PLACES = tuple(_tuplegetter(place, "") for place in range(24))


def _annotated(namespace: dict[str, Any]) -> tuple[str, ...]:
    """The names that the body of a class annotates. From Python 3.14 it has a function for them, unless annotations are strings."""
    if sys.version_info >= (3, 14) and "__annotations__" not in namespace:
        import annotationlib

        annotate = annotationlib.get_annotate_from_class_namespace(namespace)
        if annotate is None:
            return ()
        return tuple(annotationlib.call_annotate_function(annotate, annotationlib.Format.FORWARDREF))
    return tuple(namespace.pop("__annotations__", ()))  # not read afterwards, and a quarter of the memory of a class


@dataclass_transform(frozen_default=True)
class _ValueType(type):
    """Makes the annotations of a class the fields of a tuple."""

    __match_args__: tuple[str, ...]
    _count: int
    _defaults: dict[str, object]
    _last: tuple[object, ...]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> "_ValueType":
        fields = _annotated(namespace)
        defaults = {field: namespace[field] for field in fields if field in namespace}
        namespace["_count"], namespace["_defaults"], namespace["_last"] = len(fields), defaults or _NO_DEFAULTS, tuple(defaults.values())
        namespace.update(zip(fields, _PLACES[: len(fields)], strict=True))
        namespace["__match_args__"] = fields
        namespace["__slots__"] = ()
        return super().__new__(mcs, name, bases, namespace)


class Value(tuple[object, ...], metaclass=_ValueType):
    """Base of immutable values. Fields are annotated, and may have defaults; only values of one class are equal."""

    __slots__ = ()

    def __new__(cls, *values: object, **named: object) -> Self:
        """TypeError for fields that are missing or not known."""
        missing = cls._count - len(values)
        if missing or named:
            if named or missing < 0 or missing > len(cls._last):
                values = cls._completed(values, named)
            else:
                values += cls._last[-missing:]
        return tuple.__new__(cls, values)

    @classmethod
    def _completed(cls, values: tuple[object, ...], named: dict[str, object]) -> tuple[object, ...]:
        fields = cls.__match_args__
        rest = fields[len(values) :]
        given = {**cls._defaults, **named}
        if len(values) > len(fields) or not given.keys() >= set(rest) or not set(rest).issuperset(named):
            raise TypeError(f"{cls.__name__}: values for {', '.join(fields)}, not {values} and {named}")
        return values + tuple(map(given.__getitem__, rest))

    def _replace(self, **named: object) -> Self:
        """The same with other values for some fields."""
        values = tuple(map(named.pop, self.__match_args__, self))
        return type(self)(*values, **named)

    def __getnewargs__(self) -> tuple[object, ...]:
        return tuple(self)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((type(self), *self))

    def __repr__(self) -> str:
        fields = (f"{field}={value!r}" for field, value in zip(type(self).__match_args__, self, strict=True))
        return f"{type(self).__name__}({', '.join(fields)})"
