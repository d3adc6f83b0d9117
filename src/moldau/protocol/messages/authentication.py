"""Authentication of connections, and the credentials of users.

* Authentication of a connection: SaslHandshake (key 17, never flexible) and SaslAuthenticate (36). After version 0 of SaslHandshake raw
  tokens follow, after version 1 SaslAuthenticate requests.
* SCRAM credentials of users: DescribeUserScramCredentials (key 50) and AlterUserScramCredentials (51).
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, binary, int8, int16, int32, int64, message, string


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


@message
class UserName:
    """One user."""

    name: str = string("0+")


@message
class DescribeUserScramCredentialsRequest:
    """Which users; null for all."""

    API: ClassVar = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS

    users: list[UserName] | None = array(UserName, "0+", nullable="0+")


@message
class CredentialInfo:
    """One credential: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""

    mechanism: int = int8("0+")
    iterations: int = int32("0+")


@message
class DescribeUserScramCredentialsResult:
    """The credentials of one user."""

    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo, "0+")


@message
class DescribeUserScramCredentialsResponse:
    """Credentials by user."""

    API: ClassVar = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult, "0+")


@message
class ScramCredentialDeletion:
    """A credential to delete."""

    name: str = string("0+")
    mechanism: int = int8("0+")


@message
class ScramCredentialUpsertion:
    """A credential to set; the password comes salted, never in the clear."""

    name: str = string("0+")
    mechanism: int = int8("0+")
    iterations: int = int32("0+")
    salt: bytes = binary("0+")
    salted_password: bytes = binary("0+")


@message
class AlterUserScramCredentialsRequest:
    """What to delete and what to set."""

    API: ClassVar = ApiKey.ALTER_USER_SCRAM_CREDENTIALS

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion, "0+")
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion, "0+")


@message
class AlterUserScramCredentialsResult:
    """What became of one user's credentials."""

    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


@message
class AlterUserScramCredentialsResponse:
    """One answer for each user."""

    API: ClassVar = ApiKey.ALTER_USER_SCRAM_CREDENTIALS

    throttle_time_ms: int = int32("0+")
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult, "0+")
