"""Authentication of a connection: SaslHandshake (key 17, never flexible) and SaslAuthenticate (36).

After version 0 of SaslHandshake raw tokens follow, after version 1 SaslAuthenticate requests.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, binary, int16, int64, message, string


@message
class SaslHandshakeRequest:
    """The mechanism that the client wants."""

    API: ClassVar = ApiKey.SASL_HANDSHAKE

    mechanism: str = string("0+")


@message
class SaslHandshakeResponse:
    """The mechanisms that there are."""

    API: ClassVar = ApiKey.SASL_HANDSHAKE

    error_code: int = int16("0+")
    mechanisms: list[str] = array(string, "0+")


@message
class SaslAuthenticateRequest:
    """The client's next token."""

    API: ClassVar = ApiKey.SASL_AUTHENTICATE

    auth_bytes: bytes = binary("0+")


@message
class SaslAuthenticateResponse:
    """The broker's next token."""

    API: ClassVar = ApiKey.SASL_AUTHENTICATE

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = binary("0+")
    session_lifetime_ms: int = int64("1+", ignorable=True)
