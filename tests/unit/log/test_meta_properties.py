"""meta.properties is read as Java reads properties, in both of Kafka's versions, and written in version 0."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.log.damage import DamagedFileError
from moldau.log.meta_properties import MetaProperties, format_meta_properties, parse_meta_properties


def test_what_zookeeper_mode_wrote() -> None:
    data = b"#\n#Tue Nov 05 10:00:00 UTC 2024\nbroker.id=3\nversion=0\ncluster.id=Kk9Ff5kLQpO0jyPUFxK3Vg\n"
    assert parse_meta_properties(data, "m") == MetaProperties(0, 3, "Kk9Ff5kLQpO0jyPUFxK3Vg")


def test_what_kraft_mode_writes() -> None:
    data = (
        b"#\n#Tue Nov 05 10:00:00 UTC 2024\ncluster.id=AAAAAAAAQACAAAAAAAAAAA\ndirectory.id=OUa5zQpxRWOP1wOYWHD3xg\nnode.id=1\nversion=1\n"
    )
    assert parse_meta_properties(data, "m") == MetaProperties(1, 1, "AAAAAAAAQACAAAAAAAAAAA", "OUa5zQpxRWOP1wOYWHD3xg")


def test_what_the_oldest_brokers_wrote() -> None:
    assert parse_meta_properties(b"version=0\nbroker.id=0\n", "m") == MetaProperties(0, 0, None)
    assert parse_meta_properties(b"", "m") == MetaProperties(0, None, None)


def test_what_we_write() -> None:
    assert format_meta_properties(MetaProperties(0, 0, "abc", moldau="made")) == b"#\nbroker.id=0\ncluster.id=abc\nmoldau=made\nversion=0\n"


def test_other_forms_of_javas_properties() -> None:
    data = b"! a remark\n  version : 0 \r\nbroker.id 7\n\ncluster.id=a\\:b\\=c\\\\d\nunknown=x=y\n"
    assert parse_meta_properties(data, "m") == MetaProperties(0, 7, "a:b=c\\d")


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1), st.integers(0, 2**31 - 1), st.sampled_from([0, 1]))
def test_what_is_written_is_read(cluster_id: str, broker_id: int, version: int) -> None:
    properties = MetaProperties(version, broker_id, cluster_id, "dir" if version else None)
    assert parse_meta_properties(format_meta_properties(properties), "m") == properties


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"version=2\n", "m, line 1: version 2 is neither 0 nor 1"),
        (b"#\nversion=x\n", "m, line 2: version='x' is not a number"),
        (b"broker.id=\n", "m, line 1: broker.id='' is not a number"),
        (b"version=1\nnode.id=1\n", "m, end of file: version 1 without"),
        (b"version=1\ncluster.id=x\n", "m, end of file: version 1 without"),
    ],
)
def test_damage_is_named_with_its_line(data: bytes, message: str) -> None:
    with pytest.raises(DamagedFileError) as caught:
        parse_meta_properties(data, "m")
    assert str(caught.value).startswith(message)
