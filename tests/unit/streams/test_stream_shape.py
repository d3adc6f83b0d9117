"""A changed job is refused with each difference that its checkpoint cannot take, and what Spark can take is let through."""

from dataclasses import replace
from pathlib import Path

import pytest

from moldau.streams.errors import CheckpointError
from moldau.streams.shape import JobShape, Operator, QueryShape, check_fit, differences, read_shape, write_shape

COUNTS = Operator("Aggregate", {"keys": "window STRUCT, airport STRING", "results": "count(1) BIGINT"})
QUERY = QueryShape(("topics moldau, subscribe flights",), (COUNTS,), ("topic counts", "table /lake/counts"), "append")
SHAPE = JobShape("flights", "4.3.0", {"counts": QUERY})


def changed(**parts: object) -> list[str]:
    return differences(SHAPE, replace(SHAPE, queries={"counts": replace(QUERY, **parts)}))  # type: ignore[arg-type]


def test_the_same_job_fits() -> None:
    assert differences(SHAPE, SHAPE) == []


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        (
            {"inputs": ("topics moldau, subscribe arrivals",)},
            "input 1 was topics moldau, subscribe flights, and is topics moldau, subscribe arrivals",
        ),
        ({"inputs": (*QUERY.inputs, "x")}, "input 2 is new: x"),
        ({"inputs": ()}, "input 1 is missing: it was topics moldau, subscribe flights"),
        (
            {"operators": ()},
            "stateful operator 1 is missing: it was Aggregate, keys window STRUCT, airport STRING, results count(1) BIGINT",
        ),
        ({"operators": (COUNTS, Operator("Join", {}))}, "stateful operator 2 is new: Join"),
        (
            {"operators": (Operator("Aggregate", {**COUNTS.parts, "keys": "window STRUCT"}),)},
            "stateful operator 1 (Aggregate), keys was window STRUCT, airport STRING, and is window STRUCT",
        ),
        ({"outputs": ("topic counts",)}, "output table /lake/counts is no longer written"),
        ({"outputs": (*QUERY.outputs, "topic more")}, "output topic more is new: it would miss the batches before"),
        ({"mode": "update"}, "the output mode was append, and is update"),
    ],
)
def test_a_difference_is_named(parts: dict[str, object], line: str) -> None:
    assert changed(**parts) == [f"query counts: {line}"]


def test_a_query_without_state_may_have_another_mode() -> None:
    stateless = replace(QUERY, operators=())
    before = replace(SHAPE, queries={"counts": stateless})
    assert differences(before, replace(SHAPE, queries={"counts": replace(stateless, mode="update")})) == []


def test_versions_of_spark() -> None:
    """A newer one reads what an older one has written, the same the same, an older one may not."""
    assert differences(SHAPE, replace(SHAPE, spark="4.4.1")) == []
    assert differences(SHAPE, replace(SHAPE, spark="4.3.2")) == []
    assert differences(SHAPE, replace(SHAPE, spark="4.2.0")) == ["it was written by Spark 4.3.0, and this is Spark 4.2.0"]


def test_the_file_beside_the_checkpoints(tmp_path: Path) -> None:
    """It comes back as it was written; a query that is left out keeps its part; another job's is refused, and nothing is written then."""
    directory = str(tmp_path / "job")
    assert check_fit(directory, SHAPE) == SHAPE
    write_shape(directory, SHAPE)
    assert read_shape(directory) == SHAPE
    more = replace(SHAPE, queries={"sessions": QUERY})
    assert set(check_fit(directory, more).queries) == {"counts", "sessions"}
    with pytest.raises(
        CheckpointError, match=r"job other does not fit .* nothing was read or written. it is the checkpoint of job flights"
    ):
        check_fit(directory, replace(SHAPE, job="other"))
    assert read_shape(directory) == SHAPE
    assert [each.name for each in (tmp_path / "job").iterdir()] == ["job.json"]


def test_a_file_that_is_no_shape(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"version": 1}', '{"version": 9}'):
        (tmp_path / "job.json").write_text(text)
        with pytest.raises(CheckpointError, match=r"job.json: is not the shape of a job"):
            read_shape(str(tmp_path))
