"""A client's pattern matches whole transactional ids as Python's own matcher does, in linear time and bounded memory, or is refused."""

import re
import subprocess
import sys

import pytest
import re2
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from moldau.broker.transactions.listing import LENGTH_MAX, compile_pattern
from moldau.model.errors import ErrorCode, PeerError
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
        ("a|ab", ["a", "ab"], ["b"]),
        (r"\t[\n\.]", ["\t\n", "\t."], ["t."]),
        ("(a*)*", ["", "aaaa"], ["b"]),
        (r"\bapp\b.*", ["app-1"], ["apps"]),
        ("(?i)app", ["app", "APP"], ["ap"]),
        ("a{", ["a{"], ["a"]),
        ("ä.ö", ["äöö", "ä€ö"], ["äö"]),
    ],
)
def test_a_pattern_matches_whole_texts(pattern: str, matching: list[str], others: list[str]) -> None:
    matches = compile_pattern(pattern)
    assert [text for text in matching + others if matches(text)] == matching
    assert [text for text in matching + others if re.fullmatch(pattern, text)] == matching


MALFORMED = ["(", ")", "a)", "(a", "[a", "[", "*", "a|*", "+a", "?", "{2}", "a{3,2}", "a{1001}", "a\\", "[z-a]"]
NOT_LINEAR = [r"(a)\1", "(?=a)", "(?!a)", "(?<=a)b"]
TOO_LARGE = ["x" * (LENGTH_MAX + 1), "(((a{100}){100}){100})", "(ab?){1000}", "(ab?){1000}" * 9, r"\pL{1000}"]


@pytest.mark.parametrize("pattern", MALFORMED + NOT_LINEAR + TOO_LARGE)
def test_what_is_malformed_or_too_large_is_refused(pattern: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Claim: with the error of Kafka and a reason that can be read, and RE2 writes nothing to standard error."""
    with pytest.raises(
        PeerError, match=r"^(INVALID_REGULAR_EXPRESSION: )?(invalid pattern: [^b]|the pattern has \d+ (characters|instructions))"
    ) as refused:
        compile_pattern(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(a|aa)+b", "(.*)*x", "a*" * 100 + "b", "(x+x+)+y", "(a?){50}a{50}"])
def test_patterns_that_backtracking_takes_ages_for_take_no_time(pattern: str) -> None:
    assert not compile_pattern(pattern)("a" * 3000 + "!")


def test_no_pattern_is_kept() -> None:
    """Claim: a client that asks with ever other patterns does not fill the memory."""
    for number in range(10):
        compile_pattern(f"app-{number}.*")
    assert re2._Regexp._make.cache_info().currsize == 0


def test_the_engine_is_not_loaded_without_a_pattern() -> None:
    program = """
import sys
from moldau.broker.transactions import coordinator, listing
assert list(listing.listed([], listing.ListingFilters(), 0)) == []
assert "re2" not in sys.modules
assert list(listing.listed([], listing.ListingFilters(pattern="a.*"), 0)) == []
assert "re2" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join).map("({})".format),
        st.tuples(inner.map("({})".format), st.sampled_from(["*", "+", "?", "{0,2}", "{2}", "{1,}"])).map("".join),
    )


atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", "1", r"\."])


@settings(max_examples=sized(80, 2000))
@given(st.recursive(atoms, nested, max_leaves=6), st.lists(st.text("ab1.", max_size=6), min_size=1, max_size=5))
def test_it_agrees_with_pythons_matcher(pattern: str, texts: list[str]) -> None:
    try:
        oracle = re.compile(pattern, re.ASCII)
    except re.error:
        assume(False)
    matches = compile_pattern(pattern)
    for text in texts:
        assert matches(text) is (oracle.fullmatch(text) is not None)


def test_a_large_pattern_is_not_matched_with_a_long_text() -> None:
    """Claim: no match holds up others for 50 ms. 2,000 instructions and an id of 32 KB took a second."""
    large, small = compile_pattern("(ab?){300}"), compile_pattern("a+")
    assert small("a" * 32_000)
    assert large("a" * 300)
    with pytest.raises(PeerError, match=r"a pattern of \d+ instructions takes ids of up to \d+ characters; one has 32000"):
        large("a" * 32_000)
