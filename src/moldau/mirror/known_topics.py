"""Whether a mirror has what an order names: by what its processes have reported, and where they have not, by its sources."""

from typing import TYPE_CHECKING

from moldau.mirror.catalog import Catalog
from moldau.model.errors import ErrorCode, PeerError, WorldError
from moldau.model.near_names import did_you_mean

if TYPE_CHECKING:
    from moldau.mirror.operator import Operator
    from moldau.mirror.selection import TopicSelection
    from moldau.mirror.state.board import Board
    from moldau.mirror.state.orders import Scope


async def check_scope(operator: "Operator", board: "Board", scope: "Scope") -> None:
    """PeerError for a topic or a partition that the mirror does not have; WorldError where the source that may have it does not answer."""
    selection = board.selection(operator.plan.selection)
    if scope.topic is None or _is_reported(board, selection, scope):
        return
    catalogs = await operator.source_catalogs()
    seen = [each for each in catalogs.values() if isinstance(each, Catalog)]
    counts: dict[str, int] = {}
    for each in seen:
        for topic, found in each.topics.items():
            counts[topic] = max(found.partitions, counts.get(topic, 0))
    denied = {topic for each in seen for topic in each.denied}
    if scope.topic in counts.keys() | denied and not selection.selects(scope.topic):
        raise _unknown(f"topic {scope.topic} is not one of mirror {board.mirror}: {selection.reason(scope.topic)}")
    if scope.topic in denied:
        return
    count = counts.get(scope.topic, 0)
    if count and (scope.partition is None or scope.partition < count):
        return
    if away := [each for each in catalogs.values() if isinstance(each, str)]:
        raise WorldError(f"{scope} is not known to mirror {board.mirror}: {'; '.join(away)}", retriable=True)
    if count:
        raise _unknown(f"{scope} does not exist: the topic has {count} partition{'s' if count > 1 else ''}, numbered from 0")
    for origin in operator.plan.names.origins(scope.topic):
        if origin.topic in counts:
            raise _unknown(f"topic {scope.topic} is one of the target; in source {origin.source} it is called {origin.topic}")
    raise _unknown(f"no source of mirror {board.mirror} has topic {scope.topic}{did_you_mean(scope.topic, selection.of(counts))}")


def _is_reported(board: "Board", selection: "TopicSelection", scope: "Scope") -> bool:
    rows = (row for instance in board.processes for row in board.rows(instance) if selection.selects(row.topic))
    return any(row.topic == scope.topic and scope.partition in (None, row.number) for row in rows)


def _unknown(message: str) -> PeerError:
    return PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
