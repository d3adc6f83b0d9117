"""SaslHandshake (key 17): picks a mechanism to authenticate with; never flexible.

After version 0 raw tokens follow, after version 1 SaslAuthenticate requests.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int16, message, string


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
