"""AlterUserScramCredentials (key 51): sets and deletes SCRAM credentials."""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, binary, int8, int16, int32, message, string


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
