"""The columns by which rows and their repetitions are recognised. Spark is not started."""

from moldau.streams.windows import key_column


def test_each_key_has_a_column_of_its_own() -> None:
    """By its name a changed key is found; a field of a struct is not taken for the column of another one."""
    keys = ("guid", "header.guid", "header_guid", "header")
    assert len({key_column(key) for key in keys}) == len(keys)
    assert key_column("`header`.guid") == key_column("header.guid") == "_distinct_header/guid"
