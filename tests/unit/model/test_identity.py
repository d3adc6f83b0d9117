"""Ids as text."""

from uuid import UUID

import pytest

from moldau.model.identity import format_uuid


@pytest.mark.parametrize("random", [bytes(16), b"\xff" * 16, bytes(range(16)), bytes(range(240, 256))])
def test_random_bytes_are_shown_as_the_standard_librarys_version_4_uuid(random: bytes) -> None:
    assert format_uuid(random) == str(UUID(bytes=random, version=4))
