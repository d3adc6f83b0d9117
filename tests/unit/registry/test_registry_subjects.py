"""Subjects and contexts: what belongs where, under which one name."""

import pytest

from moldau.registry.subjects import Subject, context_of, in_context_of, is_valid, normalize, parse_subject, scope_of


@pytest.mark.parametrize(
    ("text", "context", "name", "normal"),
    [
        ("orders-value", ".", "orders-value", "orders-value"),
        (":.fleet:orders", ".fleet", "orders", ":.fleet:orders"),
        (":.fleet:", ".fleet", "", ":.fleet:"),
        (":.fleet", ".fleet", "", ":.fleet:"),
        (":.:orders", ".", "orders", "orders"),
        (":.fleet:a:b", ".fleet", "a:b", ":.fleet:a:b"),
        ("a:b", ".", "a:b", "a:b"),
        (":*:orders", "*", "orders", ":*:orders"),
        ("", ".", "", ""),
    ],
)
def test_a_subject_has_a_context_a_name_and_one_form(text: str, context: str, name: str, normal: str) -> None:
    assert parse_subject(text) == Subject(context, name)
    assert normalize(text) == normal
    assert context_of(normal) == context


def test_a_reference_is_meant_in_the_context_of_its_schema() -> None:
    assert in_context_of(":.fleet:orders", "common") == ":.fleet:common"
    assert in_context_of("orders", "common") == "common"
    assert in_context_of(":.fleet:orders", ":.:common") == "common"
    assert scope_of(".fleet") == ":.fleet:"


def test_names_that_no_subject_can_have() -> None:
    for name in ("tab\tinside", "__GLOBAL", "__EMPTY", "", ":.fleet:", ":.__GLOBAL:orders", ":*:orders", "bell\x07"):
        assert not is_valid(name), name
    for name in ("orders-value", "a/b", "with space", "ünï", ":.fleet:orders"):
        assert is_valid(name), name
    assert is_valid(":.fleet:", for_settings=True)
    assert is_valid(":.__GLOBAL:", for_settings=True)
