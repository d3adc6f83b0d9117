"""A level says which earlier versions count and who must read whom; the answer is in the words of Confluent's registry."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.registry.schemas.compatibility import OLD_SCHEMA_SHOWN, CompatibilityLevel, EarlierVersion, incompatibilities
from moldau.registry.schemas.language import Incompatibility, ParsedSchema
from moldau.registry.schemas.languages import LANGUAGES, UnknownLanguageError, language, parsed

Level = CompatibilityLevel


def avro(*fields: str, size: int = 0) -> str:
    listed = ",".join(f'{{"name":"{field}","type":"int"}}' for field in fields)
    doc = f'"doc":"{"x" * size}",' if size else ""
    return f'{{"type":"record","name":"R",{doc}"fields":[{listed}]}}'


def earlier(*texts: str) -> list[EarlierVersion]:
    def loads(text: str) -> Callable[[], ParsedSchema]:
        return lambda: parsed("AVRO", text, stored=True)

    return [EarlierVersion(number, loads(text)) for number, text in enumerate(texts, start=1)]


A, AB, B = avro("a"), avro("a", "b"), avro("b")


@pytest.mark.parametrize(
    ("new", "history", "allowed"),
    [
        (A, [], set(Level)),
        # A field less: the new schema reads old data; old readers miss the field.
        (A, [AB], {Level.NONE, Level.BACKWARD, Level.BACKWARD_TRANSITIVE}),
        # A field more, without a default: the other way round.
        (AB, [A], {Level.NONE, Level.FORWARD, Level.FORWARD_TRANSITIVE}),
        (B, [A], {Level.NONE}),
        (A, [A], set(Level)),
        # Only transitive levels look beyond the latest version.
        (AB, [A, AB], {Level.NONE, Level.BACKWARD, Level.FORWARD, Level.FULL, Level.FORWARD_TRANSITIVE}),
        (A, [B, AB], {Level.NONE, Level.BACKWARD}),
    ],
)
def test_each_level_allows_what_it_should(new: str, history: list[str], allowed: set[CompatibilityLevel]) -> None:
    schema = parsed("AVRO", new)
    assert {level for level in Level if not incompatibilities(level, schema, earlier(*history))} == allowed


def test_the_message_names_difference_version_and_old_schema() -> None:
    messages = incompatibilities(Level.BACKWARD, parsed("AVRO", AB), earlier(B, A))
    assert messages == [
        (
            "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'b' at path '/fields/1' in the new schema has no "
            "default value and is missing in the old schema', additionalInfo:'b'}"
        ),
        "{oldSchemaVersion: 2}",
        "{oldSchema: '" + A + "'}",
    ]


def test_forward_has_the_old_schema_read_the_new_one_and_full_reports_both() -> None:
    forward = incompatibilities(Level.FORWARD, parsed("AVRO", A), earlier(AB))
    assert "in the old schema has no default value and is missing in the new schema" in forward[0]
    full = incompatibilities(Level.FULL, parsed("AVRO", A), earlier(B))
    assert ["'b'" in full[0], "'a'" in full[1], len(full)] == [True, True, 4]


def test_a_transitive_level_stops_at_the_newest_version_that_does_not_fit() -> None:
    messages = incompatibilities(Level.BACKWARD_TRANSITIVE, parsed("AVRO", AB), earlier(A, B, AB))
    assert "{oldSchemaVersion: 2}" in messages


def test_versions_that_do_not_count_are_not_even_parsed() -> None:
    def never() -> ParsedSchema:
        raise AssertionError

    history = [EarlierVersion(1, never), *earlier(A)]
    assert incompatibilities(Level.BACKWARD, parsed("AVRO", A), history) == []
    assert incompatibilities(Level.NONE, parsed("AVRO", A), [EarlierVersion(1, never)]) == []


def test_a_long_old_schema_is_cut_and_an_unnumbered_one_has_no_version() -> None:
    long = avro("a", size=OLD_SCHEMA_SHOWN)
    messages = incompatibilities(Level.BACKWARD, parsed("AVRO", AB), [EarlierVersion(None, lambda: parsed("AVRO", long))])
    assert len(messages) == 2
    assert messages[1].startswith("{oldSchema: <truncated> '{")
    assert len(messages[1]) == OLD_SCHEMA_SHOWN + len("{oldSchema: <truncated> '...'}")


def test_another_language_is_never_compatible() -> None:
    assert incompatibilities(Level.FULL, parsed("JSON", "{}"), earlier(A)) == ["Incompatible because of different schema type"]


def test_stored_schemas_that_cannot_be_compared_are_not_compatible() -> None:
    circle = parsed("JSON", '{"properties": {"x": {"$ref": "#/properties/x"}}}', stored=True)
    messages = incompatibilities(
        Level.BACKWARD, parsed("JSON", '{"properties": {"x": {"type": "null"}}}'), [EarlierVersion(1, lambda: circle)]
    )
    assert messages[0].startswith("Unexpected exception during compatibility check: The reference '#/properties/x'")


def test_the_page_shows_what_the_program_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[4] / "docs" / "schemas.md").read_text(encoding="utf-8")
    program = page.partition("```python\n")[2].partition("```")[0]
    exec(program, {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 3
    assert all(f"    {line}\n" in page for line in printed)


def test_braces_in_a_path_are_left_alone() -> None:
    odd = Incompatibility("X", "/{x}", "at '/{x}' in the {reader} schema, not in the {writer} schema")
    assert odd.message("new", "old") == '{errorType:"X", description:"at \'/{x}\' in the new schema, not in the old schema"}'


def test_languages_go_by_name_and_a_text_is_parsed_once() -> None:
    assert [language(name).name for name in LANGUAGES] == list(LANGUAGES)
    assert parsed("AVRO", A) is parsed("AVRO", A)
    with pytest.raises(UnknownLanguageError, match="'XML'; there are JSON, PROTOBUF, AVRO"):
        language("XML")


def test_a_language_is_loaded_when_it_is_asked_for() -> None:
    """A registry of Avro schemas imports neither protoc nor jsonschema nor fastavro."""
    program = (
        "import sys; from moldau.registry.schemas.languages import parsed; import moldau.registry.schemas.compatibility;"
        "parsed('AVRO', '\"int\"');"
        "print(sorted({'google.protobuf', 'grpc_tools', 'jsonschema', 'referencing', 'fastavro'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
