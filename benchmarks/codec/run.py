"""Speed of the codec: `python benchmarks/codec/run.py [NAME...]`, JSON lines out.

Runs every `bench_*.py` beside it, or those whose names are given, such as `metadata`. Each has `measure()`, which yields its rows.
"""

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def rows(names: list[str]) -> Iterator[dict[str, Any]]:
    """Results of the modules, in the order of their names."""
    for path in sorted(HERE.glob("bench_*.py")):
        if not names or path.stem.removeprefix("bench_") in names:
            yield from import_module(f"{HERE.name}.{path.stem}").measure()


def main() -> None:
    """Print the results as they come."""
    sys.path.insert(0, str(HERE.parent))
    for result in rows(sys.argv[1:]):
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
