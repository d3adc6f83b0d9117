"""Any leader of the group chooses the same writer, from the members' metadata in Confluent's format."""

import json
import logging

import pytest

from moldau.registry.election import RegistryIdentity, choose, decode_assignment, decode_identity, encode_assignment, encode_identity

A, B, C = (RegistryIdentity(host, 8081) for host in ("a", "b", "c"))


def test_members_speak_as_confluents_registries_do() -> None:
    assert encode_identity(A) == b'{"version":1,"host":"a","port":8081,"master_eligibility":true,"scheme":"http","leader":false}'
    assert decode_identity(b'{"version":1,"host":"h","port":1,"master_eligibility":false,"scheme":"https","later":1}') == RegistryIdentity(
        "h", 1, eligible=False, scheme="https"
    )
    assert json.loads(encode_assignment("m", A)) == {
        "version": 1,
        "error": 0,
        "master": "m",
        "master_identity": json.loads(encode_identity(A)),
    }
    assert RegistryIdentity("::1", 8081).url == "http://[::1]:8081"


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"host":"a","port":"x"}', b"\xff"])
def test_what_is_no_identity_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of whatever kind
        decode_identity(data)


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b'{"error":0,"master_identity":[]}', b"\xff"])
def test_what_is_no_assignment_is_refused(data: bytes) -> None:
    """The thread of the election lives through whatever another registry said."""
    with pytest.raises(ValueError):  # noqa: PT011 - of whatever kind
        decode_assignment(data)


def test_the_smallest_url_writes_unless_somebody_does_already() -> None:
    def chosen(**members: RegistryIdentity) -> RegistryIdentity | None:
        return decode_assignment(choose(members))

    first = chosen(x=C, y=A, z=B)
    assert first is not None
    assert first.same(A)
    assert first.writes
    writing = RegistryIdentity("c", 8081, writes=True)
    stays = chosen(x=writing, y=A, z=B)
    assert stays is not None
    assert stays.same(C)
    two = chosen(x=writing, y=RegistryIdentity("b", 8081, writes=True), z=A)
    assert two is not None
    assert two.same(A), "two that say so are both wrong"
    assert chosen(x=RegistryIdentity("a", 1, eligible=False)) is None
    assert chosen() is None


def test_two_with_one_url_have_no_writer_and_a_line_says_why(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert decode_assignment(choose({"x": A, "y": A})) is None
    assert "--advertise" in caplog.text
