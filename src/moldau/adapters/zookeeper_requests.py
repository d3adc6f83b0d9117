"""Requests of the coordination port as kazoo's calls, and kazoo's answers as outcomes of the port.

`root` is the path of the node below which the whole tree is ("" for ZooKeeper's own root): it is put before every path here, and taken off
again. kazoo's transaction answers a creation with the path only; `_Transaction` asks for the stat too, as a single creation does.
"""

from collections.abc import Callable, Sequence
from typing import Any, assert_never

from kazoo import exceptions as errors
from kazoo.client import KazooClient
from kazoo.protocol.serialization import (
    CheckVersion,
    Create2,
    MultiHeader,
    Transaction,
    int_struct,
    read_string,
    stat_struct,
)
from kazoo.protocol.serialization import Delete as DeleteOperation
from kazoo.protocol.serialization import SetData as SetDataOperation
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL, Id, Permissions

from moldau.model.errors import CoordinationError
from moldau.ports.coordination import (
    BadVersionError,
    Check,
    Children,
    Create,
    Created,
    Data,
    Delete,
    EphemeralParentError,
    Exists,
    GetChildren,
    GetData,
    Multi,
    MultiDone,
    NodeError,
    NodeExistsError,
    NodeStat,
    NoNodeError,
    NotEmptyError,
    Outcome,
    Request,
    SetData,
    Write,
    parent_of,
)

REQUEST_BYTES_MAX = 1_000_000
"""ZooKeeper's servers end the connection at a longer request (``jute.maxbuffer``, 0xfffff, less some room for what goes around it)."""

Acl = Sequence[ACL]

OPEN: Acl = (ACL(Permissions.ALL, Id("world", "anyone")),)
CREATOR: Acl = (ACL(Permissions.ALL, Id("auth", "")),)
CREATOR_AND_READERS: Acl = (*CREATOR, ACL(Permissions.READ, Id("world", "anyone")))

_EPHEMERAL, _SEQUENTIAL = 1, 2
_UNCERTAIN = (errors.OperationTimeoutError, errors.SystemZookeeperError, errors.RuntimeInconsistency, errors.DataInconsistency)


class _Transaction(Transaction):  # type: ignore[misc]
    """A transaction whose creations answer with path and stat."""

    __slots__ = ()

    @classmethod
    def deserialize(cls, data: bytes, offset: int) -> list[Any]:
        """A result for each operation: (path, stat), stat, None, or an error."""
        results: list[Any] = []
        while True:
            header, offset = MultiHeader.deserialize(data, offset)
            if header.done:
                return results
            result: Any = None
            if header.type == Create2.type:
                path, offset = read_string(data, offset)
                result = (path, ZnodeStat._make(stat_struct.unpack_from(data, offset)))
                offset += stat_struct.size
            elif header.type == SetDataOperation.type:
                result = ZnodeStat._make(stat_struct.unpack_from(data, offset))
                offset += stat_struct.size
            elif header.type == -1:
                (code,) = int_struct.unpack_from(data, offset)
                offset += int_struct.size
                result = errors.EXCEPTIONS[code]()
            results.append(result)


def submit(client: KazooClient, request: Request, root: str, acl_of: Callable[[str], Acl], watch: Callable[[Any], object]) -> Any:
    """Hand a request to kazoo: its result, which is not there yet. ValueError for a path that ZooKeeper does not have."""
    path = "" if isinstance(request, Multi) else whole(root, request.path)
    watcher = watch if isinstance(request, GetData | Exists | GetChildren) and request.watch else None
    match request:
        case GetData():
            return client.get_async(path, watch=watcher)
        case Exists():
            return client.exists_async(path, watch=watcher)
        case GetChildren():
            return client.get_children_async(path, watch=watcher, include_data=True)
        case Create(own, data, ephemeral, sequential):
            return client.create_async(path, data, acl=list(acl_of(own)), ephemeral=ephemeral, sequence=sequential, include_data=True)
        case SetData(_, data, version):
            return client.set_async(path, data, version)
        case Delete(_, version):
            return client.delete_async(path, version)
        case Multi(writes):
            result = client.handler.async_result()
            client._call(_Transaction([_operation(write, root, acl_of) for write in writes]), result)
            return result
        case _:
            assert_never(request)


def outcome_of(request: Request, answer: Any, root: str) -> Outcome:
    """What kazoo's result means. Not for errors of the connection or the session."""
    error = answer.exception
    if isinstance(request, Multi):
        return _all_done(request.writes, answer.value, root) if error is None else _translated("multi", error)
    if error is not None:
        return _error(request, error)
    value = answer.value
    match request:
        case GetData():
            return Data(value[0], _stat(value[1]))
        case Exists():
            return None if value is None else _stat(value)
        case GetChildren():
            return Children(sorted(value[0]), _stat(value[1]))
        case _:
            return _done(request, value, root)


def whole(root: str, path: str) -> str:
    """ZooKeeper's path of a node of ours."""
    return (root + path if path != "/" else root) or "/"


def bytes_of(request: Request) -> int:
    """Length of what a request writes, about."""
    if isinstance(request, Multi):
        return sum(map(bytes_of, request.writes))  # type: ignore[arg-type]
    return len(request.path) + (len(request.data) if isinstance(request, Create | SetData) else 0)


def _operation(write: Write, root: str, acl_of: Callable[[str], Acl]) -> Any:
    path = whole(root, write.path)
    match write:
        case Create(own, data, ephemeral, sequential):
            return Create2(path, data, acl_of(own), _EPHEMERAL * ephemeral | _SEQUENTIAL * sequential)
        case SetData(_, data, version):
            return SetDataOperation(path, data, version)
        case Delete(_, version):
            return DeleteOperation(path, version)
        case Check(_, version):
            return CheckVersion(path, version)
        case _:
            assert_never(write)


def _all_done(writes: Sequence[Write], results: Sequence[Any], root: str) -> Outcome:
    """Errors before the write that failed say that it was rolled back, those after it that it was not tried."""
    for index, (write, result) in enumerate(zip(writes, results, strict=True)):
        if isinstance(result, Exception) and not isinstance(result, errors.RolledBackError):
            error = _error(write, result)
            if isinstance(error, NodeError):
                error.index = index
            return error
    return MultiDone(tuple(_done(write, result, root) for write, result in zip(writes, results, strict=True)))


def _done(write: Write, value: Any, root: str) -> Created | NodeStat | None:
    if isinstance(write, Create):
        return Created(value[0].removeprefix(root), _stat(value[1]))
    return _stat(value) if isinstance(write, SetData) else None


def _stat(stat: ZnodeStat) -> NodeStat:
    return NodeStat(stat.version, stat.czxid, stat.ctime, stat.mtime, stat.ephemeralOwner, stat.numChildren)


def _error(request: Any, error: Exception) -> CoordinationError:
    path = request.path
    match error:
        case errors.NoNodeError():
            return NoNodeError(parent_of(path) if isinstance(request, Create) else path)
        case errors.NodeExistsError():
            return NodeExistsError(path)
        case errors.BadVersionError():
            return BadVersionError(path)
        case errors.NotEmptyError():
            return NotEmptyError(path)
        case errors.NoChildrenForEphemeralsError():
            return EphemeralParentError(parent_of(path))
        case _:
            return _translated(path, error)


def _translated(what: str, error: Exception) -> CoordinationError:
    if isinstance(error, errors.NoAuthError):
        text = "ZooKeeper refuses it to this broker: its access list names other credentials (zookeeper.digest.file)"
    else:
        text = str(error) or f"ZooKeeper answers {type(error).__name__}"
    translated = CoordinationError(f"{what}: {text}", retriable=isinstance(error, _UNCERTAIN))
    translated.__cause__ = error
    return translated
