"""Addresses of stores: messages have them as they were given, but for passwords."""

from pathlib import Path

import pytest

from moldau.changelog.places import PlaceError, parse_place


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://db/shop", "postgresql://db/shop"),
        ("postgresql://moldau@db:5433/shop", "postgresql://moldau@db:5433/shop"),
        ("postgresql://moldau:secret@db:5433/shop?a=b", "postgresql://moldau@db:5433/shop?a=b"),
        ("postgres://moldau:sec:r@et@db/shop", "postgres://moldau@db/shop"),
        ("postgresql:///shop?user=moldau&password=secret&host=db", "postgresql:///shop?user=moldau&password=***&host=db"),
    ],
)
def test_passwords_are_not_shown(address: str, shown: str) -> None:
    place = parse_place(address)
    assert (place.kind, place.text, place.path) == ("postgresql", shown, address)


def test_an_address_that_is_none_is_named_without_its_password() -> None:
    with pytest.raises(PlaceError, match=r"^'mysql://moldau@db/shop' is not the address of a store"):
        parse_place("mysql://moldau:secret@db/shop")


def test_a_path_of_a_file_is_no_directory_of_tables(tmp_path: Path) -> None:
    file = tmp_path / "shop"
    file.touch()
    for path in (f"{file}", f"{tmp_path}/copy.db", "copy.duckdb"):
        with pytest.raises(
            PlaceError, match=rf"^'{path}' is no directory of Delta tables: a file is sqlite:///{path} or duckdb:///{path}$"
        ):
            parse_place(path)
    (tmp_path / "lake.db").mkdir()
    for path in (f"{tmp_path}/lake.db", "lake/shop"):
        assert parse_place(path) == (path, "delta", path)
