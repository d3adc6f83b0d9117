"""What records that did not fit may say otherwise is refused, and not answered from what is kept (F1)."""

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from moldau.registry import decisions, lookups, registration, routes, scopes
from moldau.registry.body import read_schema
from moldau.registry.errors import RestError
from moldau.registry.records import (
    ClearSubjectKey,
    ConfigKey,
    DeleteSubjectKey,
    Key,
    ModeKey,
    SchemaKey,
    SchemaVersion,
    encode_config,
    encode_key,
    encode_mode,
    encode_schema,
)
from moldau.registry.request import RestRequest
from moldau.registry.state import RegistryState
from moldau.registry.subjects import Reference

INT = read_schema({"schema": '"int"'})
MOST = 20_000


class Filled:
    """A state, and records for it that fit or do not."""

    def __init__(self) -> None:
        self.state = RegistryState(memory_bytes_max=MOST)
        self.offset = 0

    def write(self, key: Key, value: bytes | None) -> None:
        self.offset += 1
        self.state.apply(self.offset, 0, encode_key(key), value)

    def version(self, subject: str, number: int, schema_id: int, *, fits: bool = True, **fields: Any) -> None:
        text = json.dumps({"type": "string", "doc": f"{schema_id}" + ("" if fits else "x" * MOST)})
        self.write(SchemaKey(subject, number), encode_schema(SchemaVersion(subject, number, schema_id, text, **fields)))

    def config(self, scope: str | None, *, fits: bool = True) -> None:
        self.write(ConfigKey(scope), encode_config(scope, {"compatibilityLevel": "FULL", "compatibilityGroup": "" if fits else "x" * MOST}))

    def mode(self, scope: str | None, *, fits: bool = True) -> None:
        self.write(ModeKey(scope), encode_mode(scope, "READONLY" if fits else "x" * MOST))


@pytest.fixture
def filled() -> Filled:
    """`a` lacks version 2, `gone` and `:.x:b` their only one, `configured` its configuration, `read` its mode; `:.y:b` is whole."""
    found = Filled()
    for subject, number, schema_id, fits in (
        ("a", 1, 1, True), ("a", 2, 2, False), ("whole", 1, 3, True), ("gone", 1, 4, False), (":.x:b", 1, 1, False), (":.y:b", 1, 1, True),
        ("configured", 1, 5, True), ("read", 1, 6, True),
    ):  # fmt: skip
        found.version(subject, number, schema_id, fits=fits)
    found.config("configured", fits=False)
    found.config("whole")
    found.mode("read", fits=False)
    assert found.state.left_out == 5
    return found


def code(act: Callable[[], Any]) -> int:
    """That of the error that this ends with."""
    with pytest.raises(RestError) as raised:
        act()
    if raised.value.code in (50001, 42209):
        assert "larger registry.memory.max.bytes" in raised.value.message
    return raised.value.code


def request(subject: str, **options: str) -> RestRequest:
    return RestRequest("GET", "/", {"subject": subject}, {name: [value] for name, value in options.items()})


def compatibility(state: RegistryState, subject: str, number: int | None) -> list[str]:
    return lookups.compatibility(state, subject, number, INT, normalize=False)


INCOMPLETE: dict[str, Callable[[RegistryState], Any]] = {
    "latest": lambda state: lookups.version(state, "a", -1, deleted=False),
    "a version": lambda state: lookups.version(state, "a", 2, deleted=False),
    "the one of the next context": lambda state: lookups.version(state, "b", 1, deleted=False),
    "an id in the next context": lambda state: lookups.by_id(state, 1, "b"),
    "versions": lambda state: lookups.version_numbers(state, "a", deleted=False, deleted_only=False, deleted_negative=False),
    "metadata": lambda state: lookups.latest_with_metadata(state, "a", {}, deleted=False),
    "a schema": lambda state: lookups.find(state, "a", INT, normalize=False, deleted=False),
    "latest of all": lambda state: list(lookups.schemas(state, "", deleted=False, latest_only=True)),
    "compatibility with the latest": lambda state: compatibility(state, "a", -1),
    "compatibility with all": lambda state: compatibility(state, "a", None),
    "compatibility with what is gone": lambda state: compatibility(state, "gone", -1),
    "compatibility by a level that is not known": lambda state: compatibility(state, "configured", -1),
    "compatibility with a reference to the latest": lambda state: registration.candidate(
        state, "whole", read_schema({"schema": '"a"', "references": [Reference("a", "a", -1)._asdict()]})
    ),
    "configuration": lambda state: scopes.config_set_at(state, "configured"),
    "configuration in scope": lambda state: routes._config(state, request("configured", defaultToGlobal="true")),
    "mode": lambda state: scopes.mode_set_at(state, "read"),
    "mode in scope": lambda state: routes._mode(state, request("read", defaultToGlobal="true")),
    "the deletion of the latest": lambda state: decisions.delete_version(state, "a", -1, permanent=False),
    "a deletion where it may not be allowed": lambda state: decisions.delete_version(state, "read", 1, permanent=False),
}


@pytest.mark.parametrize("asked", INCOMPLETE)
def test_what_depends_on_a_record_that_was_left_out_is_not_answered(filled: Filled, asked: str) -> None:
    """An older version as the latest, true as compatible, the global configuration as the subject's."""
    assert code(lambda: INCOMPLETE[asked](filled.state)) == 50001


def test_what_does_not_depend_on_it_is_answered(filled: Filled) -> None:
    state = filled.state
    assert lookups.version(state, "a", 1, deleted=False).id == 1
    assert lookups.version(state, "whole", -1, deleted=False).id == 3
    assert lookups.by_id(state, 1, "a").subject == "a"
    assert lookups.by_id(state, 3, None).subject == "whole"
    assert lookups.by_id(state, 3, "a").subject == "whole", "an id has one text in a context"
    assert compatibility(state, "a", 1)
    assert compatibility(state, "whole", -1)
    assert routes._config(state, request("whole", defaultToGlobal="true"))["compatibilityLevel"] == "FULL"
    assert routes._mode(state, request("a", defaultToGlobal="true")) == {"mode": "READWRITE"}
    assert code(lambda: scopes.config_set_at(state, "a")) == 40408
    assert decisions.delete_version(state, "whole", 1, permanent=False).answer == 1
    assert decisions.delete_subject(state, "whole", permanent=False).answer == [1]
    assert code(lambda: registration.register(state, "whole", INT)) == 42209, "not incompatible with what may not be the latest"


def test_nothing_is_deleted_for_good_that_a_schema_which_was_left_out_may_refer_to() -> None:
    filled = Filled()
    filled.version("point", 1, 1, deleted=True)
    filled.config("line", fits=False)
    assert decisions.delete_version(filled.state, "point", 1, permanent=True).writes, "a configuration refers to nothing"
    filled.version("line", 1, 2, fits=False, references=(Reference("Point", "point", 1),))
    for act in (
        lambda: decisions.delete_version(filled.state, "point", 1, permanent=True),
        lambda: decisions.delete_subject(filled.state, "point", permanent=True),
        lambda: decisions.delete_context(filled.state, ".x"),
        lambda: decisions.set_mode(filled.state, "point", "IMPORT", force=False),
    ):
        assert code(act) == 42209


def test_a_later_record_of_the_key_that_fits_or_is_a_tombstone_makes_a_subject_whole(filled: Filled) -> None:
    filled.write(SchemaKey("a", 2), None)
    filled.version(":.x:b", 1, 1)
    filled.config("configured")
    filled.mode("read")
    filled.write(SchemaKey("gone", 1), None)
    assert lookups.version(filled.state, "a", -1, deleted=False).id == 1
    assert lookups.version(filled.state, "b", -1, deleted=False).subject == ":.x:b"
    assert scopes.config_set_at(filled.state, "configured")["compatibilityLevel"] == "FULL"
    assert scopes.mode_set_at(filled.state, "read") == "READONLY"
    assert not filled.state.lacks_schemas()


def test_a_deletion_of_versions_that_was_left_out_counts_for_its_subject_or_for_all() -> None:
    filled = Filled()
    filled.version("a", 1, 1)
    filled.version("b", 1, 2)
    filled.write(DeleteSubjectKey("a"), b'"' + b"x" * MOST + b'"')
    assert [filled.state.lacks_schemas(subject) for subject in ("a", "b")] == [True, False]
    filled.write(ClearSubjectKey(None), b'"' + b"x" * MOST + b'"')
    assert filled.state.lacks_schemas("b")


def test_how_much_is_kept_of_it_has_a_bound_beyond_which_every_subject_counts() -> None:
    filled = Filled()
    filled.version("a", 1, 1)
    tracemalloc.start()
    for number in range(3_000):
        filled.version(f":.c{number}:s", 1, 1, fits=False)
    ours = tracemalloc.Filter(True, "*/moldau/registry/*")  # threads that earlier tests have left allocate too
    taken = sum(each.size for each in tracemalloc.take_snapshot().filter_traces([ours]).statistics("filename"))
    tracemalloc.stop()
    assert 0 < taken < 1 << 20
    assert filled.state.lacks_schemas("a")
    assert code(lambda: lookups.version(filled.state, "a", -1, deleted=False)) == 50001
    assert lookups.version(filled.state, "a", 1, deleted=False).id == 1
    assert not filled.state.lacks_setting(ConfigKey("a")), "settings are counted by themselves"
