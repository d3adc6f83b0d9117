"""SaslAuthenticate (key 36): carries the tokens of an authentication."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import binary, int16, int64, message, string


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
