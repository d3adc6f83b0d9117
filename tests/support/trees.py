"""A coordination tree that is asked by calls: each returns the result or raises the error. For dialogues in tests."""

from collections.abc import Sequence

from moldau.adapters.sqlite_coordination import SqliteCoordination
from moldau.ports.coordination import (
    Create,
    Data,
    Delete,
    Exists,
    GetChildren,
    GetData,
    Multi,
    MultiDone,
    NodeStat,
    SetData,
    Write,
    answered,
    parent_of,
)


class AskedTree(SqliteCoordination):
    """A :class:`SqliteCoordination` with a method for each request."""

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False, parents: bool = False) -> str:
        """The path made; `parents` makes those that are missing."""
        parent = parent_of(path)
        if parents and self.exists(parent) is None:
            self.create(parent, parents=True)
        return answered(self, Create(path, data, ephemeral, sequential)).path

    def get(self, path: str) -> Data:
        return answered(self, GetData(path))

    def set(self, path: str, data: bytes, version: int = -1) -> NodeStat:
        return answered(self, SetData(path, data, version))

    def delete(self, path: str, version: int = -1) -> None:
        answered(self, Delete(path, version))

    def children(self, path: str) -> Sequence[str]:
        return answered(self, GetChildren(path)).names

    def exists(self, path: str) -> NodeStat | None:
        return answered(self, Exists(path))

    def multi(self, writes: Sequence[Write]) -> MultiDone:
        return answered(self, Multi(tuple(writes)))
