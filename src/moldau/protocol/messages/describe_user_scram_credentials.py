"""DescribeUserScramCredentials (key 50): tells which SCRAM credentials users have, never the secrets."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, int8, int16, int32, message, string


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
