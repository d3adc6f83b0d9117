"""A pattern of a peer matches what Python's own matcher does, in linear time, or is refused."""

import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from moldau.broker.transactions.pattern import LENGTH_MAX, Pattern
from moldau.broker.transactions.pattern_states import PatternError
from support.sizes import sized


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("app", ["app"], ["ap", "apps", ""]),
        ("app-.*", ["app-", "app-1", "app-äö"], ["app", "xapp-1", "app-\n"]),
        ("^app-[0-9]+$", ["app-1", "app-42"], ["app-", "app-x"]),
        ("(a|b)*c?", ["", "abba", "bc", "c"], ["cc", "ac1"]),
        ("(?:foo|ba[rz]){2,3}", ["foobar", "bazbazfoo"], ["foo", "foofoofoofoo"]),
        (r"\d{4}-\w+\.[^\s\d]", ["2024-x_1.y"], ["2024-x_1.5", "202-x.y"]),
        (r"a\$", ["a$"], ["a"]),
        (r"a\\$", ["a\\"], ["a$"]),
        ("[]a-c-]+", ["]abc-"], ["d"]),
        ("[^]]", ["a"], ["]"]),
        ("x{3}", ["xxx"], ["xx", "xxxx"]),
        ("x{2,}", ["xx", "xxxxx"], ["x"]),
        ("a*?b+?c??", ["b", "aabbc"], ["ac"]),
        ("()|a", ["", "a"], ["b"]),
        ("a||b", ["a", "", "b"], ["ab"]),
        (r"\t[\n\.]", ["\t\n", "\t."], ["t."]),
        ("(a*)*", ["", "aaaa"], ["b"]),
    ],
)
def test_a_pattern_matches_whole_texts(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = Pattern(pattern)
    assert [text for text in matching + others if compiled.matches(text)] == matching
    assert [text for text in matching + others if re.fullmatch(pattern, text)] == matching


MALFORMED = [
    "(",
    ")",
    "a)",
    "(a",
    "[a",
    "[",
    "*",
    "a|*",
    "+a",
    "?",
    "{2}",
    "a{",
    "a{x}",
    "a{3,2}",
    "a{1001}",
    "a{-1}",
    "a\\",
    "[z-a]",
    "]",
    "}",
]
NOT_KNOWN = [r"\1", r"(?=a)", r"\b", "(?i)a", "(?P<x>a)", "a^b", "a$b"]
TOO_LARGE = ["x" * (LENGTH_MAX + 1), "(((a{100}){100}){100})", "(" * 60 + ")" * 60]


@pytest.mark.parametrize("pattern", MALFORMED + NOT_KNOWN + TOO_LARGE)
def test_what_is_malformed_or_not_known_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        Pattern(pattern)


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(a|aa)+b", "(.*)*x", "a*" * 100 + "b", "(x+x+)+y", "(a?){50}a{50}"])
def test_patterns_that_others_take_ages_for_take_none(pattern: str) -> None:
    compiled = Pattern(pattern)
    assert not compiled.matches("a" * 5000 + "!")
    assert len(compiled._kept) < 1000


def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join).map("({})".format),
        st.tuples(inner.map("({})".format), st.sampled_from(["*", "+", "?", "{0,2}", "{2}", "{1,}"])).map("".join),
    )


atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", "1", r"\."])


@settings(max_examples=sized(200))
@given(st.recursive(atoms, nested, max_leaves=6), st.lists(st.text("ab1.", max_size=6), min_size=1, max_size=5))
def test_it_agrees_with_pythons_matcher(pattern: str, texts: list[str]) -> None:
    try:
        oracle = re.compile(pattern, re.ASCII)
    except re.error:
        assume(False)
    compiled = Pattern(pattern)
    for text in texts:
        assert compiled.matches(text) is (oracle.fullmatch(text) is not None)
