"""What a configuration holds survives being written and read; whatever text comes, the answer is an allowed value or a refusal."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from moldau.model.config import (
    BROKER,
    TOPIC,
    ConfigDefinition,
    ConfigType,
    InvalidConfigError,
    StaticConfig,
    format_value,
    parse_value,
    read_static,
)

DEFINITIONS = [*BROKER.values(), *TOPIC.values()]
TEXT = st.text(st.characters(exclude_characters=",", exclude_categories=["Cs"]), max_size=20)
VALUES = {
    ConfigType.BOOLEAN: st.booleans().map(lambda value: "TRUE" if value else "false"),
    ConfigType.SHORT: st.integers(-(2**16), 2**16).map(str),
    ConfigType.INT: st.integers(-(2**33), 2**33).map(str),
    ConfigType.LONG: st.integers(-(2**65), 2**65).map(str),
    ConfigType.DOUBLE: st.floats().map(repr),
    ConfigType.LIST: st.lists(TEXT | st.sampled_from(["compact", "delete", "*", "0:1", "PLAINTEXT://h:1"]), max_size=4).map(",".join),
    ConfigType.STRING: TEXT | st.sampled_from(["producer", "gzip", "CreateTime", "flushed", "records"]),
}


@st.composite
def definition_and_text(draw: st.DrawFn) -> tuple[ConfigDefinition, str]:
    definition = draw(st.sampled_from(DEFINITIONS))
    return definition, draw(st.text(max_size=30) | VALUES[definition.type])


@given(definition_and_text())
def test_a_value_that_is_taken_is_allowed_and_survives_being_written(case: tuple[ConfigDefinition, str]) -> None:
    definition, text = case
    try:
        value = parse_value(definition, text)
    except InvalidConfigError:
        return
    assert definition.allowed is None or definition.allowed.allows(value)
    written = format_value(definition, value)
    assert written is not None
    assert parse_value(definition, written) == value
    assert format_value(definition, parse_value(definition, written)) == written


@given(st.text(max_size=200))
def test_any_file_is_read_or_refused(text: str) -> None:
    with suppress(InvalidConfigError):
        assert isinstance(read_static(file_text=text, file_name="f"), StaticConfig)


WRITABLE = {name: text for name, each in BROKER.items() if (text := format_value(each, each.default)) is not None}


@given(st.lists(st.sampled_from(sorted(WRITABLE)), unique=True, max_size=6))
def test_a_file_of_bare_keys_says_what_it_says_whatever_names_meet(names: list[str]) -> None:
    """TOML takes a.b and a.b.c for a value and a table of the same name; here they are two names."""
    lines = [f"{name} = '{WRITABLE[name]}'" for name in names]
    assert read_static(file_text="\n".join(lines), file_name="f").texts == {name: WRITABLE[name] for name in names}
