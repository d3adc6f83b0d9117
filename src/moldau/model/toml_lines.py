"""The lines of the keys of a TOML document. `tomllib` gives values without their places, and messages need them.

This walks over a document that `tomllib` has accepted, so it only tells the parts apart: keys, strings, arrays, inline tables, comments. It
does not check, and it reads no value.
"""

import re
import tomllib
from bisect import bisect_right

Path = tuple[str | int, ...]
"""Keys from the root of the document, and the index where an element of an array follows."""

_KEY = re.compile(r"""[ \t]*(?:([A-Za-z0-9_-]+)|("(?:[^"\\\n]|\\.)*")|'([^'\n]*)')[ \t]*""")
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}'  # up to two quotation marks may precede the three at the end
    r"|'''.*?'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n]*")
"""A number, a date or a word; a date may have a blank."""


def lines_of_keys(text: str) -> dict[Path, int]:
    """The line, from 1, of each key, table header and element of an array. A table that several headers open has the line of the first."""
    return _Walk(text).lines


class _Walk:
    """One walk over a document."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]
        self.lines: dict[Path, int] = {}
        table: Path = ()
        position = self._after_blank(0)
        while position < len(text):
            if text[position] == "[":
                brackets = 2 if text.startswith("[[", position) else 1
                table, position = self._key((), position + brackets)
                position += brackets
            else:
                path, position = self._key(table, position)
                position = self._value(path, position + 1)
            position = self._after_blank(position)

    def _after_blank(self, position: int) -> int:
        found = _BLANK.match(self._text, position)
        assert found is not None
        return found.end()

    def _note(self, path: Path, position: int) -> None:
        self.lines.setdefault(path, bisect_right(self._starts, position))

    def _key(self, path: Path, position: int) -> tuple[Path, int]:
        """The path of a key, dotted or not, and the position after it: at an equals sign or a bracket."""
        while True:
            found = _KEY.match(self._text, position)
            assert found is not None
            bare, quoted, literal = found.groups()
            name = bare if bare is not None else literal if literal is not None else tomllib.loads(f"key = {quoted}")["key"]
            path = (*path, name)
            self._note(path, found.start())
            position = found.end()
            if self._text[position] != ".":
                return path, position
            position += 1

    def _value(self, path: Path, position: int) -> int:
        position = self._after_blank(position)
        match self._text[position]:
            case "[":
                return self._array(path, position + 1)
            case "{":
                return self._inline_table(path, position + 1)
            case '"' | "'":
                found = _STRING.match(self._text, position)
            case _:
                found = _SCALAR.match(self._text, position)
        assert found is not None
        return found.end()

    def _array(self, path: Path, position: int) -> int:
        index = 0
        while self._text[position := self._after_blank(position)] != "]":
            self._note((*path, index), position)
            position = self._after_comma(self._value((*path, index), position))
            index += 1
        return position + 1

    def _inline_table(self, path: Path, position: int) -> int:
        while self._text[position := self._after_blank(position)] != "}":
            inner, position = self._key(path, position)
            position = self._after_comma(self._value(inner, position + 1))
        return position + 1

    def _after_comma(self, position: int) -> int:
        position = self._after_blank(position)
        return position + 1 if self._text[position] == "," else position
