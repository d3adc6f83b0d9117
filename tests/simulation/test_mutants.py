"""The planted bugs fit the product: their targets exist, and are put back."""

import inspect

import pytest

from moldau.testing.simulation.mirrors.mutants import MIRROR_MUTANTS
from moldau.testing.simulation.mutant import Mutant
from moldau.testing.simulation.mutants import MUTANTS


@pytest.mark.parametrize("mutant", [*MUTANTS, *MIRROR_MUTANTS], ids=lambda mutant: mutant.name)
def test_a_bug_is_planted_and_taken_out(mutant: Mutant) -> None:
    holder, name, real = mutant.find()
    assert callable(real)
    assert inspect.isfunction(real)
    with mutant.planted():
        assert vars(holder)[name] is not real
    assert vars(holder)[name] is real


def test_there_are_as_many_as_the_design_wants() -> None:
    assert len({mutant.name for mutant in MUTANTS}) >= 40
