"""A bug that is planted: one function of the product, replaced in the process that simulates."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug. `target` is ``module:function`` or ``module:Class.method``; `plant` makes the function with the bug from the real one."""

    name: str
    target: str
    plant: Callable[[Function], Function]
    needs_cluster: bool = False
    """Whether nothing of it shows with one broker."""

    def find(self) -> tuple[Any, str, Function]:
        """What holds the function, its name there, and the function."""
        module, _, path = self.target.partition(":")
        holder: Any = importlib.import_module(module)
        *owners, name = path.split(".")
        for owner in owners:
            holder = getattr(holder, owner)
        return holder, name, vars(holder)[name]

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The bug is in the product until the end of the ``with``."""
        holder, name, real = self.find()
        setattr(holder, name, self.plant(real))
        try:
            yield
        finally:
            setattr(holder, name, real)
