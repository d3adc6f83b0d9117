"""Messages of pgoutput: bytes in, values out; whatever is cut off or unknown is one error (mission I5)."""

import contextlib
import struct
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.changelog.postgres.errors import StreamError
from moldau.changelog.postgres.lsn import lsn_of, lsn_text
from moldau.changelog.postgres.pgoutput import (
    POSTGRES_EPOCH_US,
    UNCHANGED,
    Begin,
    Column,
    CommitEnd,
    Delete,
    Insert,
    Relation,
    Truncate,
    Update,
    decode,
)

OID: Final = struct.pack(">I", 16_400)


def columns(*values: object) -> bytes:
    parts = [struct.pack(">H", len(values))]
    for value in values:
        match value:
            case None:
                parts.append(b"n")
            case bytes():
                parts += [b"t", struct.pack(">I", len(value)), value]
            case _:
                parts.append(b"u")
    return b"".join(parts)


MESSAGES = {
    b"B" + struct.pack(">qqi", 0x1_0000_0010, 5, 77): Begin(0x1_0000_0010, POSTGRES_EPOCH_US + 5, 77),
    b"C" + struct.pack(">bqqq", 0, 16, 24, 5): CommitEnd(16, 24, POSTGRES_EPOCH_US + 5),
    b"R"
    + OID
    + b"public\0items\0f"
    + struct.pack(">H", 2)
    + b"\1id\0"
    + struct.pack(">Ii", 23, -1)
    + b"\0n\xc3\xa1me\0"
    + struct.pack(">Ii", 1043, 24): (
        Relation(16_400, "public", "items", "f", (Column("id", 23, -1, True), Column("náme", 1043, 24, False)))
    ),
    b"R" + OID + b"\0pg_class\0n" + struct.pack(">H", 0): Relation(16_400, "pg_catalog", "pg_class", "n", ()),
    b"I" + OID + b"N" + columns(b"1", None, b""): Insert(16_400, [b"1", None, b""]),
    b"U" + OID + b"N" + columns(b"1", UNCHANGED): Update(16_400, None, False, [b"1", UNCHANGED]),
    b"U" + OID + b"K" + columns(b"1", None) + b"N" + columns(b"2", b"x"): Update(16_400, [b"1", None], False, [b"2", b"x"]),
    b"U" + OID + b"O" + columns(b"1", b"y") + b"N" + columns(b"1", b"x"): Update(16_400, [b"1", b"y"], True, [b"1", b"x"]),
    b"D" + OID + b"K" + columns(b"1", None): Delete(16_400, [b"1", None], False),
    b"D" + OID + b"O" + columns(b"1", b"x" * 70_000): Delete(16_400, [b"1", b"x" * 70_000], True),
    b"T" + struct.pack(">IB", 2, 3) + OID + struct.pack(">I", 7): Truncate((16_400, 7)),
    b"O" + struct.pack(">q", 8) + b"origin\0": None,
    b"Y" + OID + b"public\0mood\0": None,
}


@pytest.mark.parametrize("data", MESSAGES, ids=[f"{data[:1].decode()}{place}" for place, data in enumerate(MESSAGES)])
def test_each_message_is_read(data: bytes) -> None:
    assert decode(data) == MESSAGES[data]


@pytest.mark.parametrize("data", [data for data, message in MESSAGES.items() if message is not None and len(data) < 1000])
def test_a_message_that_is_cut_off_is_an_error(data: bytes) -> None:
    for size in range(len(data)):
        with pytest.raises(StreamError, match="cannot be read"):
            decode(data[:size])


@pytest.mark.parametrize("data", [b"", b"?", b"S" + OID, b"I" + OID + b"K" + columns(b"1"), b"I" + OID + b"N\0\1b\0\0\0\1x"])
def test_what_is_not_of_version_1_is_an_error(data: bytes) -> None:
    with pytest.raises(StreamError):
        decode(data)


@given(st.sampled_from("BCRIUDTOY"), st.binary(max_size=200))
def test_hostile_bytes_are_read_or_refused(kind: str, rest: bytes) -> None:
    with contextlib.suppress(StreamError):
        decode(kind.encode() + rest)


@given(st.integers(0, 2**64 - 1))
def test_a_place_in_the_log_has_one_text(lsn: int) -> None:
    assert lsn_of(lsn_text(lsn)) == lsn


def test_places_are_written_as_postgresql_does() -> None:
    assert (lsn_text(0x16B374D848), lsn_of("16/B374D848")) == ("16/B374D848", 0x16B374D848)
    with pytest.raises(ValueError, match="not a place"):
        lsn_of("16")
