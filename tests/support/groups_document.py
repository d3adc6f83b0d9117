"""The table of states and requests in docs/groups.md."""

from pathlib import Path

from moldau.broker.groups.states import GroupState

DOCUMENT = Path(__file__).parents[2] / "docs" / "groups.md"
MARK = "<!-- table:"
NO_SUCH_REQUEST = "–"
STATES = [GroupState.EMPTY, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE, GroupState.STABLE, GroupState.DEAD]


def title_and_rows() -> tuple[list[str], dict[str, dict[GroupState, str]]]:
    """What stands above the columns; and by request and state, what the request comes to."""
    lines = DOCUMENT.read_text().partition(MARK)[2].splitlines()[1:]
    title, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[: lines.index("")]]
    return title, {row[0]: dict(zip(STATES, row[1:], strict=True)) for row in rows}


def cell(outcome: str, before: GroupState, after: GroupState) -> str:
    """What a cell says of a request that was answered so, or waits, and of the states before and after it."""
    return outcome if before is after else f"{outcome} → {after.value}"
