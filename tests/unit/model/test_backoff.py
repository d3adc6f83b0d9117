"""What keeps ending is started again after longer and longer pauses, with a bound; what ran long, soon."""

from moldau.model.backoff import CALM_S, FIRST_S, LONGEST_S, Backoff


def test_pauses_double_up_to_a_bound_and_begin_again_after_a_calm_time() -> None:
    backoff, now, pauses = Backoff(), 1000.0, []
    backoff.started(now)
    for _ in range(8):
        now += 1
        pauses.append(backoff.ended(now))
        now += pauses[-1]
        assert backoff.due_at == now
        backoff.started(now)
        assert backoff.due_at is None
    assert pauses == [0.5, 1, 2, 4, 8, 16, LONGEST_S, LONGEST_S]
    assert backoff.ended(now + CALM_S) == FIRST_S
