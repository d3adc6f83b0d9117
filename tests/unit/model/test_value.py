import pickle

import pytest

from moldau.model.value import Value


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
