"""The points of the product: seen only where a simulator looks, drawn from the seed, and repeated from a script."""

from moldau.ports import probe
from moldau.testing.simulation.options import draw_options
from moldau.testing.simulation.probes import Hit, SimulatedProbe, points_of_the_product
from moldau.testing.simulation.trial import run_trial
from simulation.test_trials import WORKLOADS


def draws(given: SimulatedProbe) -> list[bool]:
    with given:
        return [probe.chance(f"point {number % 20}") for number in range(4000)]


def test_nothing_happens_where_nobody_simulates() -> None:
    probe.reached("anything")
    assert not any(probe.chance("anything") for _ in range(100))


def test_a_point_of_chance_is_on_or_off_for_a_whole_run() -> None:
    falls = draws(SimulatedProbe(1))
    on = {number for number in range(20) if any(falls[number::20])}
    assert 1 <= len(on) <= 12
    assert falls == draws(SimulatedProbe(1)) != draws(SimulatedProbe(2))


def test_a_script_repeats_the_hits_and_nothing_else() -> None:
    drawn = SimulatedProbe(1)
    falls = draws(drawn)
    scripted = SimulatedProbe(2, drawn.hits)
    assert draws(scripted) == falls
    assert draws(SimulatedProbe(1, [])) == [False] * 4000
    assert draws(SimulatedProbe(1, [Hit("point 3", 2)])).index(True) == 23


def test_the_probe_is_taken_away_at_the_end_of_a_run() -> None:
    with SimulatedProbe(1) as given:
        probe.reached("here")
    probe.reached("here")
    assert given.counts["here"] == 1


def test_the_points_are_found_in_the_source() -> None:
    points = points_of_the_product()
    assert "recovery: cut a torn batch" in points
    assert all(": " in name for name in points)


def test_a_run_is_repeated_from_what_went_wrong_in_it() -> None:
    drawn = run_trial(draw_options(38), WORKLOADS)
    repeated = run_trial(draw_options(38), WORKLOADS, drawn.script)
    assert (drawn.crc, drawn.steps) == (repeated.crc, repeated.steps)
