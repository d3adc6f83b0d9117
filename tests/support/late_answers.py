"""The worst moment for an answer: between the end of the wait for it and the question whether it has come."""

from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

LIMIT_S = 10.0


class LateAnswer(Future[T]):
    """Every wait with a limit ends without the answer, which is there in the next moment."""

    def result(self, timeout: float | None = None) -> T:
        """As `Future.result`."""
        if timeout is None:
            return super().result()
        super().exception(LIMIT_S)
        raise TimeoutError
