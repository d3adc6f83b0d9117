"""Encoders and decoders by (message class, version), made on first use; what makes them is imported then, to keep the start short."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from moldau.model.errors import ErrorCode, ProtocolError
from moldau.ports.filesystem import Bytes
from moldau.protocol.codec.errors import UnencodableError
from moldau.protocol.decoded_bounds import NO_BOUND
from moldau.protocol.versions import CODEC, FLEXIBLE_FROM

M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)


class Decoder(Protocol[M_co]):
    """A function that reads messages of one class and version."""

    def __call__(self, view: Bytes, position: int, elements_max: int = NO_BOUND, /) -> tuple[M_co, int]:
        """The message that begins at `position`, and the position after it. ProtocolError if it is malformed, or has more elements."""


Writer = Callable[[Any, Callable[[Bytes], None]], None]
"""Hands the parts of a message to a function, usually the `append` of a list."""

_decoders: dict[tuple[type[Any], int], Decoder[Any]] = {}
_writers: dict[tuple[type[Any], int], Writer] = {}


def decode(cls: type[M], version: int, view: Bytes, position: int = 0) -> M:
    """The message of `view` from `position` to the end.

    Its records are views into `view`, everything else is copied. ProtocolError if it is malformed, goes on after the message, or if
    there is no such version.
    """
    message, after = decoder(cls, version)(view, position)
    if after != len(view):
        raise ProtocolError(f"{cls.__name__} v{version}: {len(view) - after} bytes follow it")
    return message


def decoder(cls: type[M], version: int) -> Decoder[M]:
    """Function that reads a `cls`; what follows it is the caller's business. Raises as `decode` does."""
    try:
        return _decoders[cls, version]
    except KeyError:
        pass
    if not CODEC[cls.API].includes(version):  # type: ignore[attr-defined]
        raise ProtocolError(f"{cls.__name__} has no version {version}", ErrorCode.UNSUPPORTED_VERSION)
    from moldau.protocol.codec.decoding import decoder_source

    source = decoder_source(cls, version, flexible=_is_flexible(cls, version))
    made: Decoder[M] = source.compile("decode", f"<decoder of {cls.__name__} v{version}>")
    _decoders[cls, version] = made
    return made


def encode(message: Any, version: int) -> bytes:
    """The bytes of a message. UnencodableError if the version or the wire types cannot carry what it holds."""
    parts: list[Bytes] = []
    writer(type(message), version)(message, parts.append)
    return b"".join(parts)


def encode_into(parts: list[Bytes], message: Any, version: int) -> None:
    """Append the bytes of a message to `parts`; its records are not copied. UnencodableError as for `encode`."""
    writer(type(message), version)(message, parts.append)


def encoder(cls: type[M], version: int) -> Callable[[M], bytes]:
    """`encode` for one class and version."""
    write = writer(cls, version)

    def encode_message(message: M) -> bytes:
        parts: list[Bytes] = []
        write(message, parts.append)
        return b"".join(parts)

    return encode_message


def writer(cls: type[Any], version: int) -> Writer:
    """Function that hands out the parts of a `cls` in order. It raises as `encode` does."""
    try:
        return _writers[cls, version]
    except KeyError:
        pass
    if not CODEC[cls.API].includes(version):
        raise UnencodableError(f"{cls.__name__} has no version {version}")
    from moldau.protocol.codec.encoding import encoder_source

    source = encoder_source(cls, version, flexible=_is_flexible(cls, version))
    made: Writer = source.compile("encode", f"<encoder of {cls.__name__} v{version}>")
    _writers[cls, version] = made
    return made


def _is_flexible(cls: type[Any], version: int) -> bool:
    first = FLEXIBLE_FROM[cls.API]
    return first is not None and version >= first
