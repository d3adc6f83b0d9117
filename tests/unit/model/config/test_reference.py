"""``docs/configuration.md`` says what the table of definitions says."""

from pathlib import Path

from moldau.model.config import BROKER, TOPIC
from moldau.model.config.reference import render

PAGE = Path(__file__).parents[4] / "docs" / "configuration.md"


def test_the_page_is_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "write it with: python -m moldau.model.config.reference docs/configuration.md"


def test_every_configuration_has_its_line() -> None:
    lines = render().splitlines()
    for name in [*TOPIC, *BROKER]:
        assert any(line.startswith(f"| `{name}`") for line in lines), name
