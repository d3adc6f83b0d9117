"""Pauses of a mirror, as an operator begins and ends them."""

from moldau.mirror.accepting import advice
from moldau.mirror.known_topics import check_scope
from moldau.mirror.operator import Operator
from moldau.mirror.state.orders import Pause, Scope, pause_record
from moldau.mirror.state.reports import WHOLE_TOPIC, Row
from moldau.mirror.state.view import newest_rows


async def pause(operator: Operator, scope: Scope) -> None:
    """Begin a pause. PeerError for a topic or a partition that the mirror does not have, WorldError."""
    await check_scope(operator, await operator.board(), scope)
    await operator.order([pause_record(operator.plan.name, scope, Pause(operator.by, operator.now_ms))])


async def resume(operator: Operator, scope: Scope) -> list[str]:
    """End the pauses within a scope: a line for each, for those that are wider, and for what has halted. Errors as of `pause`."""
    board = await operator.board()
    ended = [each for each in board.pauses if scope.contains(each)]
    if not ended:
        await check_scope(operator, board, scope)
    await operator.order([pause_record(operator.plan.name, each, None) for each in dict.fromkeys([scope, *ended])])
    lines = [f"{each} is resumed" for each in ended] or [f"{scope} was not paused"]
    lines += [f"{each} is still paused, by {pause.by}" for each, pause in board.pauses.items() if each.contains(scope) and each != scope]
    selects = board.selection(operator.plan.selection).selects
    for row, *_ in newest_rows(board, operator.now_ms, board.processes):
        if row.state.is_halted and selects(row.topic) and _is_within(row, scope):
            lines.append(f"{row.name} of {row.source} has halted, {row.state.value}: {advice(operator, row)}")
    return lines


def _is_within(row: Row, scope: Scope) -> bool:
    """A row of a whole topic is within a scope of one of its partitions, too."""
    return scope.topic in (None, row.topic) and scope.partition in (None, row.number if row.number != WHOLE_TOPIC else scope.partition)
