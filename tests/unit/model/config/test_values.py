"""A value's text is read strictly, and an error names the configuration, the text and what is allowed."""

import pytest

from moldau.model.config import TOPIC, ConfigDefinition, ConfigType, ConfigValue, InvalidConfigError, format_value, parse_value
from moldau.model.config.validators import (
    AddressLimits,
    Between,
    DifferentItems,
    OneOf,
    SomeOf,
    ThrottledReplicas,
    address_limits,
    at_least,
)
from moldau.model.errors import ErrorCode

INT = ConfigDefinition("an.int", ConfigType.INT, None, "")
LONG = ConfigDefinition("a.long", ConfigType.LONG, None, "")
SHORT = ConfigDefinition("a.short", ConfigType.SHORT, None, "")
BOOLEAN = ConfigDefinition("a.boolean", ConfigType.BOOLEAN, None, "")
DOUBLE = ConfigDefinition("a.double", ConfigType.DOUBLE, None, "")
STRING = ConfigDefinition("a.string", ConfigType.STRING, None, "")
LIST = ConfigDefinition("a.list", ConfigType.LIST, None, "")
PASSWORD = ConfigDefinition("a.password", ConfigType.PASSWORD, None, "", sensitive=True)


@pytest.mark.parametrize(
    ("definition", "text", "value"),
    [
        (INT, "5", 5),
        (INT, " -5 ", -5),
        (INT, "+5", 5),
        (INT, "0005", 5),
        (INT, "2147483647", 2**31 - 1),
        (INT, "-2147483648", -(2**31)),
        (LONG, "9223372036854775807", 2**63 - 1),
        (SHORT, "32767", 32767),
        (BOOLEAN, "true", True),
        (BOOLEAN, " FALSE ", False),
        (DOUBLE, "0.5", 0.5),
        (DOUBLE, "1.7976931348623157E308", 1.7976931348623157e308),
        (DOUBLE, "-1", -1.0),
        (STRING, "  a b ", "a b"),
        (STRING, "", ""),
        (LIST, "", ()),
        (LIST, " a , b ", ("a", "b")),
        (LIST, "a,a,b", ("a", "b")),
        (LIST, "a,,b", ("a", "", "b")),
        (PASSWORD, " as it is ", " as it is "),
    ],
)
def test_text_is_read_by_its_type(definition: ConfigDefinition, text: str, value: ConfigValue) -> None:
    assert parse_value(definition, text) == value


@pytest.mark.parametrize(
    ("definition", "text"),
    [
        *(
            (INT, text)
            for text in ("", " ", "x", "1.0", "1e3", "0x10", "1_000", "1 0", "--1", "+", "٣", "2147483648", "-2147483649", "9" * 5000)
        ),
        (LONG, "9223372036854775808"),
        (SHORT, "32768"),
        *((BOOLEAN, text) for text in ("", "yes", "1", "tru")),
        *((DOUBLE, text) for text in ("", "nan", "inf", "-Infinity", "1_0", "x", "1e999")),
    ],
)
def test_text_that_is_no_value_is_refused_with_name_and_range(definition: ConfigDefinition, text: str) -> None:
    with pytest.raises(InvalidConfigError) as refused:
        parse_value(definition, text)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert refused.value.name == definition.name
    assert refused.value.message == f"{definition.name}: '{text}' is not allowed, must be {definition.type.name.lower()}"


def test_a_secret_is_not_repeated_in_an_error() -> None:
    definition = ConfigDefinition("a.secret", ConfigType.INT, None, "", sensitive=True)
    with pytest.raises(InvalidConfigError, match="the given value is not allowed") as refused:
        parse_value(definition, "hunter2")
    assert "hunter2" not in refused.value.message


def test_a_range_stands_in_the_error() -> None:
    with pytest.raises(InvalidConfigError, match=r"segment\.bytes: '10' is not allowed, must be int \[1048576,\.\.\.\]"):
        parse_value(TOPIC["segment.bytes"], "10")
    with pytest.raises(InvalidConfigError, match=r"cleanup\.policy: 'delete,,compact' is not allowed, must be list of \[compact, delete\]"):
        parse_value(TOPIC["cleanup.policy"], "delete,,compact")


def test_ranges() -> None:
    assert at_least(1).allows(1)
    assert not at_least(1).allows(0)
    assert not at_least(1).allows("1")
    level = Between(1, 9, also=-1)
    assert [number for number in range(-3, 12) if level.allows(number)] == [-1, *range(1, 10)]
    assert str(level) == "[1,...,9] or -1"
    assert str(OneOf("a", "b")) == "[a, b]"
    assert str(OneOf(False)) == "[false]"
    assert SomeOf("a", "b").allows(())
    assert not SomeOf("a", "b").allows(("c",))
    assert not DifferentItems().allows(())
    assert not DifferentItems().allows(("",))
    assert DifferentItems().allows(("a", "b"))


@pytest.mark.parametrize(
    ("text", "allowed"),
    [("", True), ("*", True), ("0:1", True), ("0:1,2:3", True), ("*,0:1", False), ("0", False), ("a:1", False), ("0:", False)],
)
def test_throttled_replicas(text: str, allowed: bool) -> None:
    assert ThrottledReplicas().allows(parse_value(LIST, text)) == allowed


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("", {}),
        (" 192.0.2.2:2 , [2001:db8::1]:0,2001:db8::2:3,", {"192.0.2.2": 2, "2001:db8::1": 0, "2001:db8::2": 3}),
        ("host:2147483647", {"host": 2**31 - 1}),
        *((text, None) for text in ("nonsense", "192.0.2.2", "192.0.2.2:", ":2", "[]:2", "a:-1", "a:1_0", "a:x", "a:1.5", "a:2147483648")),
        ("a:1,b", None),
    ],
)
def test_limits_of_addresses(text: str, limits: dict[str, int] | None) -> None:
    assert AddressLimits().allows(parse_value(STRING, text)) == (limits is not None)
    if limits is not None:
        assert address_limits(text) == limits


def test_values_are_written_as_java_writes_them() -> None:
    assert format_value(BOOLEAN, True) == "true"
    assert format_value(DOUBLE, 1.7976931348623157e308) == "1.7976931348623157E308"
    assert format_value(DOUBLE, 0.5) == "0.5"
    assert format_value(LIST, ("a", "b")) == "a,b"
    assert format_value(LIST, ()) == ""
    assert format_value(INT, None) is None
