"""A former source leaves its successor's log after the last offset whose epoch is the same in both; everything else is said, not cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.mirror.divergence import Divergence, UnrelatedLogsError, divergence
from moldau.mirror.log_ends import EpochRun
from moldau.model.identity import LogCut

OWN = 65_541


def runs(start: int, *epochs: tuple[int, int]) -> list[EpochRun]:
    """Epochs, each with the offset where it ends."""
    found = []
    for epoch, end in epochs:
        found.append(EpochRun(epoch, start, end))
        start = end
    return found


@pytest.mark.parametrize(
    ("former", "promoted", "offset", "end", "cut"),
    [
        pytest.param(runs(0, (5, 103)), runs(0, (5, 100), (OWN, 200)), 100, 103, (OWN - 1, 100), id="three were never mirrored"),
        pytest.param(runs(0, (5, 100)), runs(0, (5, 100), (OWN, 200)), 100, 100, (OWN - 1, 100), id="all was mirrored"),
        pytest.param(runs(0, (5, 100)), runs(0, (5, 100), (OWN, 100)), 100, 100, (OWN - 1, 100), id="nothing was written since"),
        pytest.param(runs(0, (5, 100), (7, 130)), runs(0, (5, 100), (OWN, 200)), 100, 130, (OWN - 1, 100), id="elections after the copy"),
        pytest.param(runs(0, (5, 100), (8, 100)), runs(0, (5, 100), (OWN, 200)), 100, 100, (OWN - 1, 100), id="elections without records"),
        pytest.param(runs(40, (5, 103)), runs(60, (5, 100), (OWN, 200)), 100, 103, (OWN - 1, 100), id="retention took from both"),
        pytest.param(runs(0, (5, 103)), runs(0, (OWN, 10)), 0, 103, (OWN - 1, 0), id="nothing was ever mirrored"),
        pytest.param(runs(0, (-1, 0)), runs(0, (5, 100), (OWN, 200)), 0, 0, (4, 0), id="an empty log"),
        pytest.param(runs(0, (5, 100), (OWN, 150)), runs(0, (5, 100), (OWN, 200)), 150, 150, None, id="it follows already"),
    ],
)
def test_the_logs_part_after_the_last_epoch_that_both_have(
    former: list[EpochRun], promoted: list[EpochRun], offset: int, end: int, cut: tuple[int, int] | None
) -> None:
    assert divergence(former, promoted) == Divergence(offset, end, None if cut is None else LogCut(*cut))


@pytest.mark.parametrize(
    ("former", "promoted", "reason"),
    [
        pytest.param(runs(0, (5, 100), (OWN, 200)), runs(0, (5, 103)), "wrong way round", id="the target was promoted"),
        pytest.param(runs(0, (5, 100), (OWN, 100)), runs(0, (5, 103)), "wrong way round", id="promoted, and nothing written yet"),
        pytest.param(runs(0, (5, 100)), runs(120, (5, 130), (OWN, 200)), "nothing is left to compare", id="retention has passed its end"),
        pytest.param(runs(0, (5, 100)), runs(100, (OWN, 200)), "nothing is left to compare", id="retention has reached its end"),
        pytest.param(runs(300, (5, 400)), runs(0, (5, 100), (OWN, 200)), "nothing is left to compare", id="it begins later"),
        pytest.param(runs(0, (5, 103)), runs(60, (4, 100), (OWN, 200)), "different epochs already", id="another log"),
        pytest.param(runs(0, (5, 50), (6, 90), (7, 100)), runs(0, (5, 40), (6, 90), (OWN, 200)), "the logs part", id="they meet again"),
        pytest.param(runs(0, (5, 90), (7, 130)), runs(0, (5, 100), (OWN, 200)), "the target lost", id="an unclean election"),
        pytest.param(runs(0, (5, 100), (OWN, 180)), runs(0, (5, 100), (OWN, 150)), "lost records", id="the source lost its end"),
    ],
)
def test_logs_of_which_one_cannot_follow_the_other_are_refused(former: list[EpochRun], promoted: list[EpochRun], reason: str) -> None:
    with pytest.raises(UnrelatedLogsError, match=reason):
        divergence(former, promoted)


@pytest.mark.drawn
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), min_size=1, max_size=6),
    st.integers(0, 20),
    st.lists(st.integers(0, 4), max_size=4),
    st.integers(0, 5),
)
def test_a_copy_that_was_promoted_is_left_where_it_was_cut(
    steps: list[tuple[int, int]], mirrored: int, later: list[int], written: int
) -> None:
    """Beside a log with an epoch for each offset: the source's elections and records, of which the copy had some when it was promoted."""
    source: list[int] = []
    epoch = 0
    for rise, count in [*steps, *((1, count) for count in later)]:
        epoch += rise
        source += [epoch] * count
    mirrored = min(mirrored, len(source))
    copy = source[:mirrored] + [epoch + OWN] * written
    found = divergence(_of(source, epoch), _of(copy, epoch + OWN))
    assert (found.offset, found.end) == (mirrored, len(source))
    assert found.cut == LogCut(epoch + OWN - 1, mirrored)


def _of(epochs: list[int], newest: int) -> list[EpochRun]:
    """A log whose offsets have these epochs, and which is led with `newest`."""
    found: list[EpochRun] = []
    for offset, epoch in enumerate(epochs):
        if found and found[-1].epoch == epoch:
            found[-1] = found[-1]._replace(end=offset + 1)
        else:
            found.append(EpochRun(epoch, offset, offset + 1))
    if not found or found[-1].epoch != newest:
        found.append(EpochRun(newest, len(epochs), len(epochs)))
    return found
