"""After damage the first offset that can be read again is looked for near it."""

import pytest

from moldau.client.fetched_batches import first_true


@pytest.mark.parametrize("limit", [*range(12), 1000])
def test_the_first_that_holds_is_found_near_the_start_with_few_questions(limit: int) -> None:
    asked: list[int] = []

    def holds(number: int) -> bool:
        asked.append(number)
        return number >= limit

    assert first_true(1, 10_000, holds) == max(1, limit)
    assert len(asked) <= 22
    assert first_true(5, 9, lambda number: False) == 9
