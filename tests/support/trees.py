"""A coordination tree that is asked by calls: each returns the result or raises the error. For dialogues in tests."""

from collections.abc import Sequence
from typing import cast

from moldau.adapters.sqlite_coordination import SqliteCoordination
from moldau.model.errors import CoordinationError
from moldau.ports.coordination import (
    Children,
    Create,
    Created,
    Data,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Multi,
    MultiDone,
    NodeStat,
    Outcome,
    Request,
    Result,
    SetData,
    Write,
    parent_of,
)


class AskedTree(SqliteCoordination):
    """A :class:`SqliteCoordination` with a method for each request."""

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False, parents: bool = False) -> str:
        """The path made; `parents` makes those that are missing."""
        parent = parent_of(path)
        if parents and self.exists(parent) is None:
            self.create(parent, parents=True)
        return cast("Created", self._ask(Create(path, data, ephemeral, sequential))).path

    def get(self, path: str) -> Data:
        return cast("Data", self._ask(GetData(path)))

    def set(self, path: str, data: bytes, version: int = -1) -> NodeStat:
        return cast("NodeStat", self._ask(SetData(path, data, version)))

    def delete(self, path: str, version: int = -1) -> None:
        self._ask(Delete(path, version))

    def children(self, path: str) -> Sequence[str]:
        return cast("Children", self._ask(GetChildren(path))).names

    def exists(self, path: str) -> NodeStat | None:
        return cast("NodeStat | None", self._ask(Exists(path)))

    def multi(self, writes: Sequence[Write]) -> MultiDone:
        return cast("MultiDone", self._ask(Multi(tuple(writes))))

    def _ask(self, request: Request) -> Result:
        """The result of a request, which is answered within the call."""
        outcomes: list[Outcome] = []
        self.submit(request, outcomes.append)
        (outcome,) = outcomes
        if isinstance(outcome, CoordinationError):
            raise outcome
        return outcome
