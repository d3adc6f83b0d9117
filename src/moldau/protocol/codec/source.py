"""A Python function in the making: its lines, its constants, its runs of fixed-size fields."""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """Lines of one generated function and the names that they use."""

    def __init__(self, **names: Any) -> None:
        self.names: dict[str, Any] = names
        self._lines: list[str] = []
        self._depth = 0
        self._count = 0

    def line(self, text: str) -> None:
        """Add a line at the present depth."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines added inside stand one level deeper under `head`."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, stem: str) -> str:
        """A local name that is not yet in use."""
        self._count += 1
        return f"{stem}{self._count}"

    def constant(self, stem: str, value: Any) -> str:
        """A global name for `value`, the same one each time."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = f"{stem}_{len(self.names)}"
        self.names[name] = value
        return name

    def shared(self, stem: str, make: Callable[..., Any], *arguments: Any, **options: Any) -> str:
        """A global name for what `make` makes of these arguments; `stem` tells one such thing from another."""
        if stem not in self.names:
            self.names[stem] = make(*arguments, **options)
        return stem

    def layout(self, method: str, code: str) -> str:
        """A global name for a bound method of the `struct.Struct` with this layout, big-endian."""
        name = f"{method}_{code.replace('?', 'o')}"
        if name not in self.names:
            self.names[name] = getattr(struct.Struct(">" + code), method)
        return name

    def text(self) -> str:
        """All lines."""
        return "\n".join(self._lines) + "\n"

    def compile(self, function: str, filename: str) -> Callable[..., Any]:
        """Run the lines and hand out the function that they define."""
        exec(compile(self.text(), filename, "exec"), self.names)
        made: Callable[..., Any] = self.names[function]
        return made
