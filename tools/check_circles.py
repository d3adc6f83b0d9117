"""Refuse circles of imports between modules: `python tools/check_circles.py [FOLDER]`.

Without circles each module can be understood, tested and moved with what it imports, and nothing more. Every import counts, those inside a
function and those for types too. What both sides need goes into a module below them, or an argument gets a small Protocol for its type.
"""

import ast
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "moldau"


def modules_of(source: Path) -> dict[str, Path]:
    """The modules of the package in the folder `source`, by name."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(path: Path, modules: Mapping[str, Path]) -> list[str]:
    """Those of the `modules` that a file imports, in the order of their names."""
    found: dict[str, None] = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found[name if name in modules else node.module] = None
    return sorted(name for name in found if name in modules)


def circles(imports: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module, or of one that imports itself, by Tarjan's algorithm."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        stack.append(module)
        for other in imports[module]:
            if other not in order:
                visit(other)
            if other in stack:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == order[module]:
            start = stack.index(module)
            members = sorted(stack[start:])
            del stack[start:]
            if len(members) > 1 or module in imports[module]:
                found.append(members)

    for module in imports:
        if module not in order:
            visit(module)
    return found


def main(source: Path) -> int:
    """Print the circles; whether there was any."""
    modules = modules_of(source)
    imports = {name: imports_of(path, modules) for name, path in modules.items()}
    found = circles(imports)
    for members in found:
        print(f"circle of {len(members)} modules:")
        for name in members:
            print(f"  {modules[name]}: imports {', '.join(other for other in imports[name] if other in members)}")
    print(f"circles: {len(found)} found in {len(modules)} modules")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve() if sys.argv[1:] else SOURCE))
