"""Encoders and decoders by (message class, version), made on first use; what makes them is imported then, to keep the start short."""

from collections.abc import Callable, Generator, Iterator
from typing import Any, Protocol, TypeVar

from moldau.model.errors import ErrorCode, ProtocolError
from moldau.ports.filesystem import Bytes
from moldau.protocol.codec.primitives import NO_BOUND, UnencodableError, Writer
from moldau.protocol.versions import CODEC, FLEXIBLE_FROM

M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)


class Decoder(Protocol[M_co]):
    """A function that reads messages of one class and version."""

    def __call__(self, view: Bytes, position: int, elements_max: int = NO_BOUND, /) -> tuple[M_co, int]:
        """The message that begins at `position`, and the position after it. ProtocolError if it is malformed, or has more elements."""


StepDecoder = Callable[[Bytes, int, int], Generator[None, None, tuple[Any, int]]]
"""A decoder that yields between elements and returns what the other one does. Its view must not change before its end."""

StepWriter = Callable[[Any, Callable[[Bytes], None]], Iterator[None]]
"""A writer that yields between elements."""

_decoders: dict[tuple[type[Any], int], Decoder[Any]] = {}
_writers: dict[tuple[type[Any], int], Writer] = {}
_step_decoders: dict[tuple[type[Any], int], StepDecoder] = {}
_step_writers: dict[tuple[type[Any], int], StepWriter] = {}
_element_writers: dict[tuple[type[Any], int], Writer] = {}


def decode(cls: type[M], version: int, view: Bytes, position: int = 0) -> M:
    """The message of `view` from `position` to the end.

    Its records are views into `view`, everything else is copied. ProtocolError if it is malformed, if bytes follow the message, or if
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
    made: Decoder[M] = _compiled_decoder(cls, version, in_steps=False)
    _decoders[cls, version] = made
    return made


def step_decoder(cls: type[Any], version: int) -> StepDecoder:
    """`decoder` as a generator function, for what may take long."""
    made = _step_decoders.get((cls, version))
    if made is None:
        made = _step_decoders[cls, version] = _compiled_decoder(cls, version, in_steps=True)
    return made


def _compiled_decoder(cls: type[Any], version: int, *, in_steps: bool) -> Callable[..., Any]:
    if not CODEC[cls.API].includes(version):
        raise ProtocolError(f"{cls.__name__} has no version {version}", ErrorCode.UNSUPPORTED_VERSION)
    from moldau.protocol.codec.decoding import decoder_source

    source = decoder_source(cls, version, flexible=_is_flexible(cls, version), in_steps=in_steps)
    return source.compile("decode", f"<decoder of {cls.__name__} v{version}>")


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
    made: Writer = _compiled_writer(cls, cls, version, in_steps=False)
    _writers[cls, version] = made
    return made


def step_writer(cls: type[Any], version: int) -> StepWriter:
    """`writer` as a generator function, for what may take long."""
    made = _step_writers.get((cls, version))
    if made is None:
        made = _step_writers[cls, version] = _compiled_writer(cls, cls, version, in_steps=True)
    return made


def element_writer(cls: type[Any], element: type[Any], version: int) -> Writer:
    """`writer` for a struct in a `cls`."""
    made = _element_writers.get((element, version))
    if made is None:
        made = _element_writers[element, version] = _compiled_writer(cls, element, version, in_steps=False)
    return made


def _compiled_writer(cls: type[Any], struct: type[Any], version: int, *, in_steps: bool) -> Callable[..., Any]:
    if not CODEC[cls.API].includes(version):
        raise UnencodableError(f"{cls.__name__} has no version {version}")
    from moldau.protocol.codec.encoding import encoder_source

    source = encoder_source(struct, version, flexible=_is_flexible(cls, version), in_steps=in_steps)
    return source.compile("encode", f"<encoder of {struct.__name__} v{version}>")


def _is_flexible(cls: type[Any], version: int) -> bool:
    first = FLEXIBLE_FROM[cls.API]
    return first is not None and version >= first
