"""Why an operation of a simulated client failed. Its errors are those of `moldau.client`: code that catches them runs on either."""

from dataclasses import dataclass

from moldau.client.failures import ClientError
from moldau.model.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Cause:
    """A :class:`moldau.client.failures.Reason`. `took_effect_perhaps`: whether the operation may have been carried out all the same."""

    error_code: ErrorCode
    text: str = ""
    took_effect_perhaps: bool = False
    is_fatal: bool = False

    def name(self) -> str:
        """As Kafka calls it."""
        return self.error_code.name

    def code(self) -> int:
        """Kafka's number."""
        return self.error_code

    def retriable(self) -> bool:
        """Whether the same call may succeed later."""
        return self.error_code.retriable

    def fatal(self) -> bool:
        """Whether the client is of no more use."""
        return self.is_fatal

    def str(self) -> str:
        """For a person."""
        return self.text or self.error_code.name.lower().replace("_", " ")


def took_effect_perhaps(error: BaseException | None) -> bool:
    """Whether an operation that failed so may have been carried out."""
    return isinstance(error, ClientError) and isinstance(error.error, Cause) and error.error.took_effect_perhaps
