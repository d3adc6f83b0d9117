"""``docs/configuration.md`` says what the table of definitions says."""

from pathlib import Path

import pytest

from moldau.model.config import BROKER, TOPIC
from moldau.model.config.reference import USAGE, main, render

PAGE = Path(__file__).parents[4] / "docs" / "configuration.md"


def test_the_page_is_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "write it with: python -m moldau.model.config.reference docs/configuration.md"


def test_every_configuration_has_its_line() -> None:
    lines = render().splitlines()
    for name in [*TOPIC, *BROKER]:
        assert any(line.startswith(f"| `{name}`") for line in lines), name


def test_it_is_written_where_one_says_and_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["page.md"]) == 0
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == render()
    assert [main(["--help"]), main(["-h"]), main([]), main(["--nonsense"]), main(["a", "b"])] == [0, 0, 2, 2, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["page.md"]


def test_help_goes_to_standard_output_and_a_slip_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    assert capsys.readouterr() == (f"{USAGE}\n", "")
    main([])
    assert capsys.readouterr() == ("", f"{USAGE}\n")
