"""From Spark's plan of a streaming DataFrame to what a checkpoint has to fit. Looks at the plan, runs nothing."""

import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from moldau.lake.reading.event_times import COLUMN as EVENT_TIME
from moldau.model.topic_names import matches
from moldau.streams.shape import Operator

_ID = re.compile(r"#\d+L?")
"""Numbers of columns, which are others in each plan."""
_MICROSECONDS = re.compile(r"\b(\d{4,})(?:L|BL)?\b")
_GAP = re.compile(r"CAST\('([^']*)' AS INTERVAL\)")
_SOURCE, _COUNTED_AS = "StreamingRelationV2", "countedAs"
_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")


def inputs_of(frame: Any) -> tuple[str, ...]:
    """The streams that a DataFrame reads, in the order in which a checkpoint has them."""
    return tuple(_input(node) for node in _nodes(_plan(frame)) if node.nodeName().startswith("StreamingRelation"))


@dataclass(frozen=True, slots=True)
class StreamInput:
    """A stream of a query."""

    topic: str
    number: int
    """In a checkpoint."""


def counted_inputs(frame: Any, prefix: str) -> dict[str, list[int]]:
    """The streams that are counted, by name: by their tasks, or observed under `prefix` and the name. Their numbers in a checkpoint."""
    found: dict[str, list[int]] = {}
    for node, number in _with_numbers(frame):
        if node.nodeName() == "CollectMetrics" and node.name().startswith(prefix):
            found.setdefault(node.name().removeprefix(prefix), []).append(number)
        elif (name := _counted_as(node)) is not None:
            found.setdefault(name, []).append(number)
    return found


def task_counted_inputs(frame: Any) -> dict[str, StreamInput]:
    """The streams that their tasks count, by name; of one that stands in the plan several times the first."""
    found: dict[str, StreamInput] = {}
    for node, number in _with_numbers(frame):
        if (name := _counted_as(node)) is not None:
            found.setdefault(name, StreamInput(node.extraOptions().get("subscribe"), number))
    return found


def _with_numbers(frame: Any) -> Iterator[tuple[Any, int]]:
    """The nodes of a plan, each with the number of the last stream before it. Spark gives a stream that stands in it twice one number."""
    sources: list[Any] = []
    number = -1
    for node in _nodes(_plan(frame)):
        if node.nodeName().startswith("StreamingRelation"):
            number = next((each for each, known in enumerate(sources) if known.equals(node)), len(sources))
            if number == len(sources):
                sources.append(node)
        yield node, number


def _counted_as(node: Any) -> str | None:
    """The name under which the tasks of a stream count it; None if they do not: they make its event times, or nothing is counted."""
    if node.nodeName() != _SOURCE or _items(node.output())[-1].name() != EVENT_TIME:
        return None
    name: str | None = node.extraOptions().get(_COUNTED_AS)
    return name


def first_offsets(execution: Any) -> list[dict[str, Any]]:
    """Where a batch begins to read, by the number of the stream: of the first batch there is no note in a checkpoint."""
    relations: list[Any] = []
    for node in _nodes(execution.logical()):
        if node.nodeName().startswith("StreamingDataSourceV2") and not any(known.equals(node) for known in relations):
            relations.append(node)
    return [json.loads(each.startOffset().get().json()) if each.startOffset().isDefined() else {} for each in relations]


def columns_read(execution: Any) -> dict[str, list[str]]:
    """Which columns a batch reads of the streams that their tasks count, by name; a stream of which it may read all is left out.

    As Spark's optimizer has left it: a projection over a stream, with or without filters between them, makes new rows of the columns that
    it names, and nothing above it sees another one.
    """
    found: dict[str, list[str] | None] = {}
    for stream, read in _streams(execution.optimizedPlan(), None):
        name = stream.relation().options().get(_COUNTED_AS)
        if name is None:
            continue
        before = found.get(name, [])
        found[name] = None if read is None or before is None else [*before, *read]
    return {name: sorted(set(columns)) for name, columns in found.items() if columns is not None}


def _streams(node: Any, read: Any) -> Iterator[tuple[Any, list[str] | None]]:
    """The streams below a node, each with the columns of it that are read; None if that may be all.

    `read` is the set of attributes that what is above the node reads, None if that may be all. The names in it are as the query writes
    them, in any case of letters: those of the stream's own attributes are returned.
    """
    name = node.nodeName()
    if name.startswith("StreamingDataSourceV2"):
        yield node, None if read is None else _own_names(node.outputSet(), read)
        return
    if name == "Project":
        read = node.references()
    elif name == "Filter" and read is not None:
        read = getattr(read, "$plus$plus")(node.references())
    else:
        read = None
    for each in _items(node.children()):
        yield from _streams(each, read)


def _own_names(own: Any, read: Any) -> list[str]:
    """Of those of its attributes that are read, found by their numbers."""
    rest = getattr(own, "$minus$minus")
    return [each.name() for each in _items(rest(rest(read)).toSeq())]


def topics_read(frame: Any, among: Collection[str]) -> set[str]:
    """Which of these topics a DataFrame reads, by whichever option its sources name them."""
    options = [node.extraOptions() for node in _nodes(_plan(frame)) if node.nodeName() == _SOURCE]
    return {topic for topic in among if any(_reads(each, topic) for each in options)}


def _reads(options: Any, topic: str) -> bool:
    names, pattern, assigned = (options.get(name) for name in _SUBSCRIPTIONS)
    return (
        (names is not None and topic in [name.strip() for name in names.split(",")])
        or (pattern is not None and matches(re.compile(pattern), topic))
        or (assigned is not None and topic in json.loads(assigned))
    )


def operators_of(frame: Any) -> tuple[Operator, ...]:
    """The stateful operators, in the order in which a checkpoint has them."""
    return tuple(
        Operator(name, _STATEFUL[name](node))
        for node in _nodes(_plan(frame))
        if (name := node.nodeName()) in _STATEFUL and node.isStreaming()
        if name != "Join" or all(each.isStreaming() for each in _items(node.children()))
    )


def runs_by_clock(frame: Any) -> bool:
    """Whether Spark runs batches without records for it without end: state that ends by the clock may end in each of them."""
    return any(
        (name.startswith("TransformWithState") and node.timeMode().toString() == "ProcessingTime")
        or (name.startswith("FlatMapGroups") and name.endswith("WithState") and node.timeout().toString() == "ProcessingTimeTimeout")
        for node in _nodes(_plan(frame))
        if (name := node.nodeName()) in _STATEFUL and node.isStreaming()
    )


def _plan(frame: Any) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _nodes(plan: Any) -> Iterator[Any]:
    """Children before their parent, from left to right."""
    for each in _items(plan.children()):
        yield from _nodes(each)
    yield plan


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]


def _input(node: Any) -> str:
    if node.nodeName() != _SOURCE:
        return _text(node.toString())
    options = node.extraOptions()
    found = [f"{name} {options.get(name)}" for name in _SUBSCRIPTIONS if options.get(name) is not None]
    return ", ".join(["topics" if found else "source", node.sourceName(), *found])


def _text(value: str) -> str:
    return _ID.sub("", value)


def _expressions(sequence: Any, below: Any = None) -> str:
    return ", ".join(_expression(each, below) for each in _items(sequence)) or "none"


def _expression(expression: Any, below: Any) -> str:
    found = f"{_text(expression.sql())} {expression.dataType().sql()}"
    if below is not None and expression.dataType().sql().startswith("STRUCT<start: TIMESTAMP") and (window := _window(expression, below)):
        found += f" of {window}"
    return found


def _window(column: Any, plan: Any) -> str:
    """The lengths in the expression that makes a window."""
    wanted = column.exprId().id() if column.nodeName() == "AttributeReference" else None
    for node in _nodes(plan):
        if node.nodeName() not in ("Project", "Expand"):
            continue
        for each in _items(node.projectList() if node.nodeName() == "Project" else node.output()):
            if each.nodeName() in ("Alias", "AttributeReference") and each.exprId().id() == wanted:
                return window_lengths(each.sql() if node.nodeName() == "Project" else node.projections().mkString())
    return ""


def window_lengths(text: str) -> str:
    """All lengths in the text of an expression that makes a window: size, slide and its multiples, offset; or the gap."""
    text = _text(text)
    lengths = sorted({int(number) for number in _MICROSECONDS.findall(text)}, reverse=True)
    return ", ".join(f"{Decimal(each) / 1_000_000:f} s" for each in lengths) or ", ".join(dict.fromkeys(_GAP.findall(text)))


def _aggregate(node: Any) -> dict[str, str]:
    return {"keys": _expressions(node.groupingExpressions(), node.child()), "results": _expressions(node.aggregateExpressions())}


def _deduplicate(node: Any) -> dict[str, str]:
    return {"keys": _expressions(node.keys())}


def _join(node: Any) -> dict[str, str]:
    condition = node.condition()
    left, right = (_text(each.schema().toDDL()) for each in (node.left(), node.right()))
    return {
        "type": node.joinType().sql(),
        "condition": _text(condition.get().sql()) if condition.isDefined() else "none",
        "left": left,
        "right": right,
    }


def _other(node: Any) -> dict[str, str]:
    return {"rows": _text(node.schema().toDDL())}


def _with_state(node: Any) -> dict[str, str]:
    """Of `transformWithState`: its state variables are known to Spark alone, which compares them before the first batch."""
    keys = _items(node.child().output())[: node.groupingAttributesLen()]
    return {"keys": ", ".join(_expression(each, None) for each in keys), "time": node.timeMode().toString(), **_other(node)}


_STATEFUL: dict[str, Callable[[Any], dict[str, str]]] = {
    "Aggregate": _aggregate,
    "Distinct": _other,
    "Deduplicate": _deduplicate,
    "DeduplicateWithinWatermark": _deduplicate,
    "Join": _join,
    "GlobalLimit": _other,
    "FlatMapGroupsWithState": _other,
    "FlatMapGroupsInPandasWithState": _other,
    "TransformWithState": _other,
    "TransformWithStateInPySpark": _with_state,
}
"""Nodes of plans that keep state, where they are over a stream."""
