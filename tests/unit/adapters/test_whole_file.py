"""A file is replaced as a whole, or is as it was."""

from pathlib import Path

import pytest

from moldau.adapters.whole_file import write_whole


def test_a_file_is_made_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    for text in ("é" * 100_000, "short", ""):
        write_whole(path, text)
        assert path.read_text(encoding="utf-8") == text
    assert [each.name for each in tmp_path.iterdir()] == ["state.json"]


def test_where_it_cannot_be_written_the_old_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_whole(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "half \ud800")
    assert path.read_text() == "old"
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "no" / "state.json", "text")
