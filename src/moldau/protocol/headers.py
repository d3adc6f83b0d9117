"""Headers of requests and responses.

| | fields | used by |
|---|---|---|
| request v0 | key, version, correlation id | ControlledShutdown v0 |
| request v1 | and the client id, a nullable string after 16 bits of length | versions that are not flexible |
| request v2 | and tagged fields; the client id is not compact even here | flexible versions |
| response v0 | correlation id | versions that are not flexible, and ApiVersions always |
| response v1 | and tagged fields | flexible versions |
"""

from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from moldau.model.errors import ProtocolError
from moldau.ports.filesystem import Bytes
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.varint import skip_tags
from moldau.protocol.versions import FLEXIBLE_FROM

_NEVER = 1 << 15
_FLEXIBLE_FROM: dict[int, int] = {int(key): _NEVER if first is None else first for key, first in FLEXIBLE_FROM.items()}
_CONTROLLED_SHUTDOWN = int(ApiKey.CONTROLLED_SHUTDOWN)
_API_VERSIONS = int(ApiKey.API_VERSIONS)

_REQUEST_V0 = Struct(">hhi")
_REQUEST = Struct(">hhih")
_RESPONSE = Struct(">i")
_RESPONSE_FLEXIBLE = Struct(">ix")
_CLIENT_ID_AT = _REQUEST.size

_unpack_request = _REQUEST.unpack_from
_new = tuple.__new__


class RequestHeader(NamedTuple):
    """What precedes a request. `body_position` is where the message itself begins."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def decode_request_header(view: Bytes) -> RequestHeader:
    """Header of the request that `view` holds whole. ProtocolError if it is malformed.

    Key and version may be any number, known or not; with an unknown key there is no telling the version of the header, and v1 is assumed.
    """
    try:
        api_key, api_version, correlation_id, size = _unpack_request(view)
        if api_key == _CONTROLLED_SHUTDOWN and api_version == 0:
            return RequestHeader(api_key, api_version, correlation_id, None, _REQUEST_V0.size)
        position = _CLIENT_ID_AT
        client_id = None
        if size >= 0:
            position += size
            client_id = str(view[_CLIENT_ID_AT:position], "utf-8")
        elif size != -1:
            raise ProtocolError(f"client id has length {size}")
        if api_version >= _FLEXIBLE_FROM.get(api_key, _NEVER):
            position = skip_tags(view, position) if view[position] else position + 1
    except (struct_error, IndexError):
        raise ProtocolError(f"request header is cut off: {len(view)} bytes") from None
    except UnicodeDecodeError as error:
        raise ProtocolError("client id is not UTF-8") from error
    if position > len(view):
        raise ProtocolError(f"request header is cut off: it ends at byte {position} of {len(view)}")
    return _new(RequestHeader, (api_key, api_version, correlation_id, client_id, position))


def request_header(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Header of a request to send. `struct.error` if the client id has more than 32,767 bytes."""
    if api_key == _CONTROLLED_SHUTDOWN and version == 0:
        return _REQUEST_V0.pack(api_key, version, correlation_id)
    encoded = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(encoded)
    tags = b"\0" if version >= _FLEXIBLE_FROM.get(api_key, _NEVER) else b""
    return _REQUEST.pack(api_key, version, correlation_id, size) + encoded + tags


def response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """Header of the response to a request of this key and version."""
    if version >= _FLEXIBLE_FROM.get(api_key, _NEVER) and api_key != _API_VERSIONS:
        return _RESPONSE_FLEXIBLE.pack(correlation_id)
    return _RESPONSE.pack(correlation_id)


def decode_response_header(view: Bytes, api_key: int, version: int) -> tuple[int, int]:
    """Correlation id of a response, and where its message begins. ProtocolError if it is malformed."""
    if len(view) < _RESPONSE.size:
        raise ProtocolError(f"response header is cut off: {len(view)} bytes")
    (correlation_id,) = _RESPONSE.unpack_from(view)
    if version >= _FLEXIBLE_FROM.get(api_key, _NEVER) and api_key != _API_VERSIONS:
        return correlation_id, skip_tags(view, _RESPONSE.size)
    return correlation_id, _RESPONSE.size
