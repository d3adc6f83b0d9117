"""Changes of the topics of a mirror at run time, as an operator makes them and takes them back."""

from collections.abc import Mapping, Sequence

from moldau.mirror.catalog import Catalog
from moldau.mirror.operator import Operator
from moldau.mirror.patterns import Pattern
from moldau.mirror.selection import Action, Change, TopicSelection
from moldau.mirror.state.board import Board
from moldau.mirror.state.orders import change_record, withdrawn_record
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.near_names import did_you_mean


async def change(operator: Operator, changes: Sequence[Change]) -> list[str]:
    """Add or remove topics: lines about what comes of it. PeerError for a removal that matches no topic, then nothing is changed;
    WorldError.
    """
    board = await operator.board()
    catalogs = await operator.source_catalogs()
    before = after = board.selection(operator.plan.selection)
    for each in changes:
        after = after.with_change(each)
    names = _names(catalogs)
    unmatched = [each for each in changes if not any(map(each.matches, names))]
    _check_removals(board, catalogs, unmatched)
    await operator.order([change_record(board.mirror, each, operator.by, operator.now_ms) for each in changes])
    lines = _differences(catalogs, before, after)
    for each in changes:
        if each in unmatched:
            lines.append(_of_no_topic(each, names))
        elif each.action is Action.ADD:
            lines += [f"{name} is not added: {after.reason(name)}" for name in names if each.matches(name) and not after.selects(name)]
    return lines


async def forget(operator: Operator, patterns: Sequence[Pattern]) -> list[str]:
    """Take back all changes with these patterns: lines as of `change`. PeerError for a pattern without one, then nothing is changed;
    WorldError.
    """
    board = await operator.board()
    texts = {each.pattern.pattern for each in board.changes}
    for pattern in patterns:
        if pattern.pattern not in texts:
            hint = did_you_mean(pattern.pattern, texts)
            raise PeerError(
                ErrorCode.INVALID_REQUEST, f"nothing was added to mirror {board.mirror} or removed by {pattern.pattern!r}{hint}"
            )
    catalogs = await operator.source_catalogs()
    before = board.selection(operator.plan.selection)
    withdrawn = [each for each in board.changes if each.pattern in patterns]
    await operator.order([withdrawn_record(board.mirror, each) for each in withdrawn])
    board.changes = [each for each in board.changes if each not in withdrawn]
    lines = [f"topics {each.action.value} {each.pattern.pattern} is forgotten" for each in withdrawn]
    return lines + _differences(catalogs, before, board.selection(operator.plan.selection))


def _differences(catalogs: Mapping[str, Catalog | str], before: TopicSelection, after: TopicSelection) -> list[str]:
    lines = []
    for source, catalog in catalogs.items():
        if not isinstance(catalog, Catalog):
            lines.append(f"{source}: its topics are not known now: {catalog}")
            continue
        difference = before.difference(after, catalog.topics)
        lines += [f"{source}: {topic} is added" for topic in difference.come]
        lines += [f"{source}: {topic} is removed" for topic in difference.go]
        if not difference.come and not difference.go:
            lines.append(f"{source}: no topic is added or removed now")
    return lines


def _names(catalogs: Mapping[str, Catalog | str]) -> list[str]:
    """The topics of the sources that have answered."""
    return sorted({name for each in catalogs.values() if isinstance(each, Catalog) for name in (*each.topics, *each.denied)})


def _check_removals(board: Board, catalogs: Mapping[str, Catalog | str], unmatched: Sequence[Change]) -> None:
    """A topic that is reported may not be in its source any more; a source that does not answer may have one."""
    if any(isinstance(each, str) for each in catalogs.values()):
        return
    reported = {row.topic for instance in board.processes for row in board.rows(instance)}
    for each in unmatched:
        if each.action is Action.REMOVE and not any(map(each.matches, reported)):
            text = each.pattern.pattern
            added = (
                ", which was added; moldau mirror topics forget takes that back"
                if Change(Action.ADD, each.pattern) in board.changes
                else ""
            )
            hint = added or did_you_mean(text, {*_names(catalogs), *reported})
            raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic of mirror {board.mirror} matches {text!r}{hint}")


def _of_no_topic(change: Change, names: Sequence[str]) -> str:
    text = change.pattern.pattern
    if change.action is Action.REMOVE:
        return f"{text} matches no topic now"
    return (
        f"{text} matches no topic now{did_you_mean(text, names)}; topics that match later are mirrored, until moldau mirror topics forget"
    )
