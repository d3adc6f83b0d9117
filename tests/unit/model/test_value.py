import ast
import importlib
import pickle
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import moldau
from moldau.model.value import Value, _ValueType

SOURCE = Path(moldau.__file__).parent


class Opened(Value):
    path: str
    size: int = 0


class Closed(Value):
    path: str
    size: int = 0


class Woken(Value):
    """Without fields."""


class Asleep(Value):
    """Without fields."""


def fields_in_source() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Module, name, and what is assigned or annotated in its body, of each class whose base is `Value`."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        if "(Value)" not in text:
            continue
        module = ".".join(("moldau", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and "Value" in [ast.unparse(base) for base in node.bases]:
                yield module, node.name, tuple(ast.unparse(name) for part in node.body for name in assigned(part))


def assigned(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.AnnAssign):
        return [statement.target]
    return statement.targets if isinstance(statement, ast.Assign) else []


def test_each_class_has_the_fields_of_its_source() -> None:
    """Wherever the interpreter keeps annotations, and none is forgotten: a class that has lost its fields is one without fields."""
    classes = list(fields_in_source())
    assert len(classes) > 50
    found = [(module, name, getattr(importlib.import_module(module), name).__match_args__) for module, name, _ in classes]
    assert found == classes


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="classes are made so by Python itself")
def test_a_class_body_of_python_3_14_has_its_annotations_in_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that exist only for type checkers are no obstacle: the function is called for forward references, not for values."""

    class Format(Enum):
        VALUE = 1
        FORWARDREF = 3

    def call(annotate: Callable[[Format], dict[str, Any]], wanted: Format) -> dict[str, Any]:
        return annotate(wanted)

    def annotate(wanted: Format) -> dict[str, Any]:
        if wanted is Format.VALUE:
            raise NameError("Path")
        return {"path": "Path", "size": int}

    library = ModuleType("annotationlib")
    vars(library).update(
        Format=Format,
        call_annotate_function=call,
        get_annotate_from_class_namespace=lambda namespace: namespace.get("__annotate_func__"),
    )
    monkeypatch.setitem(sys.modules, "annotationlib", library)
    monkeypatch.setattr(sys, "version_info", (3, 14, 0))
    made: Any = _ValueType("Made", (Value,), {"__module__": __name__, "__annotate_func__": annotate, "size": 0})
    assert made.__match_args__ == ("path", "size")
    assert (made("a").path, made("a").size, made("a", 3).size) == ("a", 0, 3)
    strings: Any = _ValueType("Strings", (Value,), {"__module__": __name__, "__annotations__": {"path": "Path"}})
    assert strings("a").path == "a"
    empty: Any = _ValueType("Empty", (Value,), {"__module__": __name__})
    assert empty() == empty()


def test_fields_are_given_by_place_or_by_name_and_have_defaults() -> None:
    assert Opened("a") == Opened("a", 0) == Opened(path="a") == Opened(size=0, path="a") == Opened("a", size=0)
    assert (Opened("a", 3).path, Opened("a", 3).size) == ("a", 3)
    assert repr(Opened("a")) == "Opened(path='a', size=0)"


def test_values_of_two_classes_differ_also_without_fields() -> None:
    assert Opened("a") != Closed("a")
    assert Woken() != Asleep()
    assert len({Opened("a"): 1, Closed("a"): 2, Woken(): 3, Asleep(): 4, Woken(): 5}) == 4
    assert Opened("a") != ("a", 0)


def test_a_value_does_not_change() -> None:
    with pytest.raises(AttributeError):
        Opened("a").path = "b"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Opened("a").other = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("values", "named"), [((), {}), (("a", 1, 2), {}), (("a",), {"path": "b"}), (("a",), {"other": 1}), ((), {"size": 1})]
)
def test_a_field_that_is_missing_given_twice_or_not_known_is_refused(values: tuple[object, ...], named: dict[str, object]) -> None:
    with pytest.raises(TypeError, match="Opened"):
        Opened(*values, **named)  # type: ignore[arg-type]


def test_a_replaced_field_leaves_the_others() -> None:
    assert Opened("a", 3)._replace(path="b") == Opened("b", 3)
    assert Opened("a", 3)._replace() == Opened("a", 3)
    with pytest.raises(TypeError, match="other"):
        Opened("a", 3)._replace(other=1)


def test_a_pattern_takes_the_fields_by_place() -> None:
    match Opened("a", 3):
        case Closed():
            pytest.fail("of another class")
        case Opened(path, size):
            assert (path, size) == ("a", 3)
        case _:
            pytest.fail("not taken apart")


def test_a_value_survives_pickling() -> None:
    assert pickle.loads(pickle.dumps(Opened("a", 3))) == Opened("a", 3)
