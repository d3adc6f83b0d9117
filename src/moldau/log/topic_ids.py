"""Ids as Kafka writes them in files and shows them to people: 16 bytes as 22 characters of URL-safe base64, without padding."""

from binascii import Error, a2b_base64, b2a_base64

ID_BYTES = 16
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_", b"+/")
_TEXT_LENGTH = 22


def format_id(value: bytes) -> str:
    """The text of a 16-byte id."""
    assert len(value) == ID_BYTES, f"an id has {ID_BYTES} bytes, not {len(value)}"
    return b2a_base64(value, newline=False).rstrip(b"=").translate(_TO_URL).decode()


def parse_id(text: str) -> bytes:
    """The bytes of an id. ValueError if the text is not one."""
    try:
        value = a2b_base64(text.encode("ascii").translate(_FROM_URL) + b"==", strict_mode=True) if len(text) == _TEXT_LENGTH else b""
    except (Error, UnicodeEncodeError) as error:
        raise ValueError(f"{text!r} is not an id of {ID_BYTES} bytes") from error
    if len(value) != ID_BYTES:
        raise ValueError(f"{text!r} is not an id of {ID_BYTES} bytes")
    return value
