"""Every key and element of a TOML document is found in its line, however the document is written."""

import tomllib
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.model.toml_lines import Path, lines_of_keys

DOCUMENT = '''\
# [not.a.table]
name = "a"                       # = "comment"
bootstrap.servers = 'b:1'

[topics]
include = [
  "one",                         # a comment, with ] and "
  """two
lines""", "three",
]
exclude = []

[ start . "a.b" ]
partitions = { 0 = 5, "1" = 7 }
text = """
[not.a.table]
key = 1 \\""" ""\"""
at = 1979-05-27 07:32:00Z
"quoted \\u0041" = [[1, 2], [3]]

[[many]]
x = 1
[[many]]
x = 2
'''
LINES: list[tuple[Path, int]] = [
    (("name",), 2),
    (("bootstrap",), 3),
    (("bootstrap", "servers"), 3),
    (("topics",), 5),
    (("topics", "include"), 6),
    (("topics", "include", 0), 7),
    (("topics", "include", 1), 8),
    (("topics", "include", 2), 9),
    (("topics", "exclude"), 11),
    (("start",), 13),
    (("start", "a.b"), 13),
    (("start", "a.b", "partitions"), 14),
    (("start", "a.b", "partitions", "0"), 14),
    (("start", "a.b", "partitions", "1"), 14),
    (("start", "a.b", "text"), 15),
    (("start", "a.b", "at"), 18),
    (("start", "a.b", "quoted A"), 19),
    (("start", "a.b", "quoted A", 0), 19),
    (("start", "a.b", "quoted A", 0, 0), 19),
    (("start", "a.b", "quoted A", 0, 1), 19),
    (("start", "a.b", "quoted A", 1), 19),
    (("start", "a.b", "quoted A", 1, 0), 19),
    (("many",), 21),
    (("many", "x"), 22),
]


def test_each_key_has_its_line() -> None:
    tomllib.loads(DOCUMENT)
    assert list(lines_of_keys(DOCUMENT).items()) == LINES
    assert list(lines_of_keys(DOCUMENT.replace("\n", "\r\n")).items()) == LINES


@pytest.mark.parametrize("text", ["", "\n", "# nothing", "  \n\t# a\n\n"])
def test_a_document_without_keys_has_no_lines(text: str) -> None:
    assert lines_of_keys(text) == {}


SCALARS = ["1", "-2.5e3", "true", "1979-05-27 07:32:00", '"a # ] } , = [x]"', r'"\"\\"', "''", '""']
LONG = ['"""\n[x]\ny = 1\n"""', "'''\n]}\n#'''", '"""a"""""', "'''b'''''", '"""\\""""', '"""\\\n   c"""']
BLANKS = ["", " ", "\t"]
BREAKS = ["", "\n", " # [c] = {,}\n", "\n\n"]


class Writer:
    """Writes documents in which each key is used once, so that its line can be found by looking for it."""

    def __init__(self, data: st.DataObject) -> None:
        self._draw = data.draw
        self._numbers = count()

    def one_of(self, choices: list[str]) -> str:
        return self._draw(st.sampled_from(choices))

    def key(self) -> str:
        number = next(self._numbers)
        return self.one_of([f"k{number}k", f'"k{number}k"', f"'k{number}k'", f'"k{number}k"'])

    def dotted(self) -> str:
        blank = self.one_of(BLANKS)
        return f"{blank}.{blank}".join(self.key() for _ in range(self._draw(st.integers(1, 3))))

    def value(self, depth: int) -> str:
        if depth and self._draw(st.booleans()):
            inner = [self.value(depth - 1) for _ in range(self._draw(st.integers(0, 3)))]
            if self._draw(st.booleans()):
                return "[" + "".join(self.one_of(BREAKS) + each + self.one_of(BLANKS) + "," for each in inner) + self.one_of(BREAKS) + "]"
            return "{" + ",".join(f"{self.one_of(BLANKS)}{self.dotted()}={each}" for each in inner) + "}"
        return self.one_of([*SCALARS, *LONG])

    def document(self) -> str:
        text = ""
        for _ in range(self._draw(st.integers(0, 5))):
            text += self.one_of(["", "\n", "# a = 1\n"])
            if self._draw(st.booleans()):
                text += f"{self.one_of(BLANKS)}[{self.one_of(BLANKS)}{self.dotted()}]{self.one_of(BLANKS)}\n"
            else:
                text += f"{self.one_of(BLANKS)}{self.dotted()}={self.one_of(BLANKS)}{self.value(2)}{self.one_of([*BLANKS, ' # [x]'])}\n"
        return text


def paths(value: object, path: Path = ()) -> Iterator[Path]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield (*path, name)
        yield from paths(each, (*path, name))


@given(st.data())
def test_every_key_of_any_document_is_in_the_line_that_is_found(data: st.DataObject) -> None:
    """Claim: of a document that `tomllib` reads there is a line for each key and each element, and a key is where its line is."""
    text = Writer(data).document()
    content, found = tomllib.loads(text), lines_of_keys(text)
    lines = text.split("\n")
    assert sorted(map(str, found)) == sorted(map(str, paths(content)))
    for path, line in found.items():
        if isinstance(path[-1], str):
            assert path[-1] in lines[line - 1], (path, line)
