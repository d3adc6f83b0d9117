"""Probes are in time or lost, never both, and none is kept for longer than its limit (mission J1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.probe.measures import Measure, Way, percentile
from moldau.probe.prober import BrokerReport, ProbeReport


def test_a_probe_in_time_counts_with_its_latency_and_a_late_one_as_lost() -> None:
    way = Way(limit_s=5.0)
    for number in range(4):
        way.sent(number, float(number))
    way.arrived(0, 0.5)
    way.arrived(1, 6.0)  # just in time
    way.arrived(2, 7.5)  # too late, and noticed before it expired
    way.expire(8.5)  # number 3 does not come
    way.arrived(3, 9.0)  # or only now
    assert way.take() == Measure(4, 2, 0.5, 5.0)
    # the next interval begins with nothing
    assert way.take() == Measure(0, 0, None, None)
    assert way.take().availability is None


def test_a_probe_ends_in_the_interval_in_which_it_is_known_what_became_of_it() -> None:
    way = Way(limit_s=5.0)
    way.sent(1, 0.0)
    assert way.take().ended == 0
    way.lost(1)
    assert way.take() == Measure(1, 0, None, None)


def test_a_probe_that_never_set_out_counts_for_nothing() -> None:
    way = Way(limit_s=5.0)
    way.sent(1, 0.0)
    way.withdrawn(1)
    way.expire(100.0)
    assert way.take().ended == 0


@given(st.lists(st.floats(0, 100), min_size=1, max_size=200), st.integers(1, 100))
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(values: list[float], percent: int) -> None:
    found = percentile(sorted(values), percent)
    assert found is not None
    assert sum(each <= found for each in values) * 100 >= percent * len(values)
    assert sum(each < found for each in values) * 100 < percent * len(values)


def test_a_report_is_as_available_as_the_worst_of_its_ways() -> None:
    good, bad, nothing = Measure(10, 10, 0.1, 0.1), Measure(10, 5, 0.1, 0.1), Measure(0, 0, None, None)
    brokers = (BrokerReport(1, good, bad), BrokerReport(2, nothing, nothing))
    assert ProbeReport(brokers, {}).availability == pytest.approx(1.0)
    assert ProbeReport(brokers, {"b:1": bad}).availability == pytest.approx(0.5)
    assert ProbeReport((), {}).availability == 0.0
