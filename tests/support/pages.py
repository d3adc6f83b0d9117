"""The code blocks of a page of the documentation."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").glob("*.md"))
"""The pages that users read; docs/formats and docs/decisions are for those who read the code."""

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    """Texts of the fenced blocks in `language`, in their order."""
    return [text for name, text in _BLOCK.findall(page.read_text()) if name == language]


def block_with(page: Path, language: str, words: str) -> str:
    """The one block in `language` that has these words."""
    found = [text for text in blocks(page, language) if words in text]
    assert len(found) == 1, (page, language, words, len(found))
    return found[0]
