"""The report of many seeds: whether more of them would explore more, and what none has reached."""

from moldau.testing.simulation.report import LAST, SeedReport


def result(seed: int, *states: str) -> dict[str, object]:
    return {
        "seed": seed,
        "crc": 1,
        "failures": [],
        "cpu_s": 1.0,
        "steps": 1,
        "records": 1,
        "faults": 1,
        "reached": ["a: one"],
        "struck": [],
        "states": list(states),
    }


def test_the_states_that_the_last_seeds_were_the_first_to_see_are_counted() -> None:
    report = SeedReport()
    for seed in range(LAST):
        report.add(result(LAST + seed, "x", "y"))
    report.add(result(1, "x"))
    assert any("different states of partitions: 2, 1 of them seen first by the last 100 seeds" in each for each in report.lines([]))


def test_a_point_that_no_seed_has_reached_counts_from_enough_seeds_on() -> None:
    report = SeedReport()
    for seed in range(199):
        report.add(result(seed))
    assert report.never_reached(["a: one", "a: two"]) == []
    report.add(result(199))
    assert report.never_reached(["a: one", "a: two"]) == ["a: two"]
