"""How each kind of field travels, byte by byte: before flexible versions and in them (KIP-482)."""

from typing import Any, ClassVar

import pytest

from moldau.model.errors import ErrorCode, ProtocolError
from moldau.ports.filesystem import Bytes
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import UnencodableError, decode, decoder, encode, encoder
from moldau.protocol.codec.fields import (
    array,
    binary,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    message,
    record_bytes,
    string,
    struct,
    uint16,
    uint32,
    uuid,
)

OLD, FLEXIBLE = 4, 12  # versions of Fetch, whose key the samples borrow
UUID = bytes(range(16))


@message
class Inner:
    number: int = int8("0+")


@message
class Fixed:
    API: ClassVar = ApiKey.FETCH
    a: bool = boolean("0+")
    b: int = int8("0+")
    c: int = int16("0+")
    d: int = uint16("0+")
    e: int = int32("0+")
    f: int = uint32("0+")
    g: int = int64("0+")
    h: float = float64("0+")
    i: bytes = uuid("0+")


@message
class Sized:
    API: ClassVar = ApiKey.FETCH
    text: str = string("0+")
    maybe_text: str | None = string("0+", nullable="0+")
    data: bytes = binary("0+")
    records: Bytes | None = record_bytes("0+", nullable="0+")


@message
class Lists:
    API: ClassVar = ApiKey.FETCH
    numbers: list[int] = array(int16, "0+")
    maybe_numbers: list[int] | None = array(int16, "0+", nullable="0+")
    texts: list[str] = array(string, "0+")
    ids: list[bytes] = array(uuid, "0+")
    inners: list[Inner] = array(Inner, "0+")


@message
class Structs:
    API: ClassVar = ApiKey.FETCH
    inner: Inner = struct(Inner, "0+")
    maybe: Inner | None = struct(Inner, "0+", nullable="0+")


@message
class Tagged:
    API: ClassVar = ApiKey.FETCH
    last: int = int64("12+", -1, tag=5, ignorable=True)
    first: str | None = string("12+", nullable="12+", tag=0, ignorable=True)
    inner: Inner | None = struct(Inner, "12+", tag=1)
    plain: int = int8("0+")


FIXED = Fixed(a=True, b=-1, c=-2, d=65535, e=-3, f=(1 << 32) - 1, g=-4, h=1.5, i=UUID)
FIXED_BYTES = "01 ff fffe ffff fffffffd ffffffff fffffffffffffffc 3ff8000000000000 000102030405060708090a0b0c0d0e0f"

EXAMPLES = [
    (FIXED, OLD, FIXED_BYTES),
    (FIXED, FLEXIBLE, FIXED_BYTES + " 00"),
    (Sized("hé", None, b"xy", None), OLD, "0003 68c3a9 ffff 00000002 7879 ffffffff"),
    (Sized("hé", None, b"xy", None), FLEXIBLE, "04 68c3a9 00 03 7879 00 00"),
    (Sized("", "", b"", b"r"), OLD, "0000 0000 00000000 00000001 72"),
    (Sized("", "", b"", b"r"), FLEXIBLE, "01 01 01 02 72 00"),
    (Sized("a" * 127), FLEXIBLE, "8001" + "61" * 127 + "00 01 00 00"),  # 127 + 1 takes two bytes
    (
        Lists([1, 2], None, ["a", ""], [UUID], [Inner(7)]),
        OLD,
        f"00000002 0001 0002 ffffffff 00000002 0001 61 0000 00000001 {UUID.hex()} 00000001 07",
    ),
    (Lists([1, 2], None, ["a", ""], [UUID], [Inner(7)]), FLEXIBLE, f"03 0001 0002 00 03 02 61 01 02 {UUID.hex()} 02 07 00 00"),
    (Lists(maybe_numbers=[3]), OLD, "00000000 00000001 0003 00000000 00000000 00000000"),
    (Lists([5] * 127), FLEXIBLE, "8001" + "0005" * 127 + "00 01 01 01 00"),
    (Structs(Inner(1), None), OLD, "01 ff"),
    (Structs(Inner(1), Inner(2)), OLD, "01 01 02"),
    (Structs(Inner(1), Inner(2)), FLEXIBLE, "01 00 01 02 00 00"),
    (Tagged(plain=9), OLD, "09"),
    (Tagged(plain=9), FLEXIBLE, "09 00"),
    (
        Tagged(last=2, first="a", inner=Inner(3), plain=9),
        FLEXIBLE,
        "09 03 00 02 0261 01 02 0300 05 08 0000000000000002",
    ),  # in order of tags
]


@pytest.mark.parametrize(("value", "version", "data"), EXAMPLES)
def test_bytes_of_each_kind(value: Any, version: int, data: str) -> None:
    raw = bytes.fromhex(data)
    assert encode(value, version).hex(" ") == raw.hex(" ")
    assert encoder(type(value), version)(value) == raw
    assert decode(type(value), version, memoryview(raw)) == value


def test_records_are_views_and_everything_else_is_a_copy() -> None:
    frame = bytearray.fromhex("0001 61 ffff 00000001 78 00000001 72")
    sized = decode(Sized, OLD, memoryview(frame))
    frame[-1] = ord("R")
    assert bytes(sized.records or b"") == b"R"
    assert isinstance(sized.data, bytes)


def test_a_decoder_leaves_what_follows_to_its_caller() -> None:
    assert decoder(Structs, OLD)(memoryview(b"..\x01\xff!!"), 2) == (Structs(Inner(1), None), 4)


def test_a_tagged_field_at_its_default_is_not_written() -> None:
    assert encode(Tagged(last=-1, first=None, inner=Inner()), FLEXIBLE) == b"\0\0"


def test_the_last_of_two_equal_tags_counts() -> None:
    data = bytes.fromhex("09 02 00 02 0261 00 02 0262")
    assert decode(Tagged, FLEXIBLE, data) == Tagged(first="b", plain=9)


def test_unknown_tags_of_an_inner_struct_are_skipped() -> None:
    data = bytes.fromhex("01 02 00 01 aa 63 00 ff 01 07 00")  # of the inner struct two, of the outer one
    assert decode(Structs, FLEXIBLE, data) == Structs(Inner(1), None)


@message
class Versioned:
    API: ClassVar = ApiKey.FETCH
    kept: int = int8("0+")
    newer: int = int32("9+", 7)
    newer_list: list[int] = array(int32, "9+")
    newer_inner: Inner = struct(Inner, "9+")
    newer_tagged: Inner | None = struct(Inner, "12+", tag=0)
    hint: int = int32("9+", ignorable=True)
    name: str | None = string("0+", nullable="9+")


@pytest.mark.parametrize(
    "value",
    [Versioned(newer=8), Versioned(newer_list=[1]), Versioned(newer_inner=Inner(1)), Versioned(newer_tagged=Inner(1))],
    ids=["number", "list", "struct", "tagged struct"],
)
def test_a_version_refuses_what_it_cannot_carry(value: Versioned) -> None:
    with pytest.raises(UnencodableError, match=r"Versioned v4: this version cannot carry newer"):
        encode(value, OLD)
    assert decode(Versioned, FLEXIBLE, encode(value, FLEXIBLE)) == value


def test_ignorable_fields_and_defaults_are_left_out() -> None:
    assert encode(Versioned(kept=1, hint=5), OLD) == b"\x01\0\0"
    assert decode(Versioned, OLD, b"\x01\0\0") == Versioned(kept=1)


@pytest.mark.parametrize(
    ("value", "version", "why"),
    [
        (Versioned(name=None), OLD, "NoneType"),
        (Fixed(b=128), OLD, "format requires"),
        (Fixed(i=b"short"), OLD, "a UUID has 16 bytes, not 5"),
        (Sized(text="a" * 32768), OLD, "32767"),
        (Sized(text="a" * 32768), FLEXIBLE, "longer than 32767"),
        (Fixed(), 3, "no version 3"),
        (Fixed(), 19, "no version 19"),
    ],
)
def test_values_that_cannot_be_written_are_named(value: Any, version: int, why: str) -> None:
    with pytest.raises(UnencodableError, match=f"{type(value).__name__}.*{why}"):
        encode(value, version)


MALFORMED = [
    (Sized, OLD, "", "cut off"),
    (Sized, OLD, "0003 6161", "cut off"),
    (Sized, OLD, "ffff", "text has length -1"),
    (Sized, OLD, "0000 fffe", "maybe_text has length -2"),
    (Sized, OLD, "0001 ff ffff 00000000 ffffffff", "not UTF-8"),
    (Sized, OLD, "0000 ffff 80000000", "data has length -2147483648"),
    (Sized, OLD, "0000 ffff 00000000 7fffffff", "cut off"),
    (Sized, FLEXIBLE, "00", "text has length -1"),
    (Sized, FLEXIBLE, "818002" + "61" * 40000, "string has length 32768"),
    (Sized, FLEXIBLE, "ffffffffff", "varint"),
    (Lists, OLD, "7fffffff 00000000", "numbers has 2147483647 elements"),
    (Lists, OLD, "ffffffff", "numbers has length -1"),
    (Lists, FLEXIBLE, "00", "numbers has length -1"),
    (Lists, FLEXIBLE, "01 00 ffffffff0f", "texts has 4294967294 elements"),
    (Lists, FLEXIBLE, "01 00 01 01 04 0000 0000", "inners has 3 elements, more than 4 bytes"),
    (Tagged, FLEXIBLE, "09 01 05 07 00000000000000", "cut off"),
    (Tagged, FLEXIBLE, "09 01 05 09 000000000000000000", "tagged field 5 should end at byte 13 and is read to byte 12"),
    (Tagged, FLEXIBLE, "09 01 63 05 00", "tagged field 99 should end at byte 9"),
    (Fixed, FLEXIBLE, FIXED_BYTES + "01 63 05 00", "tagged fields end at byte"),
    (Fixed, OLD, FIXED_BYTES + "00", "1 bytes follow it"),
]


@pytest.mark.parametrize(("cls", "version", "data", "why"), MALFORMED)
def test_malformed_bytes_are_refused_and_named(cls: type[Any], version: int, data: str, why: str) -> None:
    with pytest.raises(ProtocolError, match=why) as caught:
        decode(cls, version, bytes.fromhex(data))
    assert str(caught.value).startswith(f"{cls.__name__} v{version}")


@pytest.mark.parametrize("version", [-1, 3, 19])
def test_there_is_no_decoder_for_other_versions(version: int) -> None:
    with pytest.raises(ProtocolError, match=f"no version {version}") as caught:
        decoder(Fixed, version)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
