"""A transaction that is interrupted, as Ctrl-C does it, when the brokers have committed it and the producer does not know yet."""

from typing import Any

from moldau.changelog.publisher import Publisher


class _InterruptedOnce:
    """A producer of librdkafka."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._pending = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __len__(self) -> int:
        return len(self._inner)

    def commit_transaction(self, *arguments: Any) -> None:
        self._inner.commit_transaction(*arguments)
        if self._pending:
            self._pending = False
            raise KeyboardInterrupt


def interrupt_next_commit(publisher: Publisher) -> None:
    """Of a publisher that has started."""
    producer: Any = publisher._producer
    producer._inner = _InterruptedOnce(producer._inner)
