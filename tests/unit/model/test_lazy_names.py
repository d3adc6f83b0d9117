"""Names that a package hands out when they are asked for are no names of its modules: an imported module would take their place."""

import importlib
import pkgutil

import pytest


@pytest.mark.parametrize("package", ["moldau.changelog", "moldau.lake", "moldau.streams", "moldau.tracking"])
def test_a_name_is_not_that_of_a_module(package: str) -> None:
    found = importlib.import_module(package)
    assert set(found.__all__).isdisjoint(each.name for each in pkgutil.iter_modules(found.__path__))
