"""Stands in for what asks the brokers: it is opened and closed like it, whatever it is given."""

from typing import Self


class BrokersStandIn:
    """The answers are those of who inherits."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass
