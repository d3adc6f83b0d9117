"""Runs that have failed once, kept as files: their options, what went wrong in them, and what they must still reach.

A file keeps no seed's meaning but what the seed has drawn, so that a change of the drawing does not change the run. A run whose places are
not reached any more has lost its point: the test that repeats it fails.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from moldau.testing.simulation.disk import DiskOptions
from moldau.testing.simulation.nemesis import Fault
from moldau.testing.simulation.network import NetworkOptions
from moldau.testing.simulation.options import Options
from moldau.testing.simulation.probes import Hit
from moldau.testing.simulation.trial import Script


class Regression(NamedTuple):
    """A run that must be clean."""

    claim: str
    """What it once broke, and what must hold."""
    reaches: Sequence[str]
    options: Options
    script: Script


def to_toml(regression: Regression) -> str:
    """The text of a file."""
    options = asdict(regression.options)
    tables = {name: options.pop(name) for name in ("faults", "settings", "network", "disk")}
    lines = [_entry("claim", regression.claim), _entry("reaches", list(regression.reaches)), "", "[options]"]
    lines += [_entry(name, value) for name, value in options.items()]
    for table, values in tables.items():
        lines += ["", f"[options.{table}]", *(_entry(name, value) for name, value in values.items())]
    for name, entries in (("fault", regression.script.faults), ("hit", regression.script.hits)):
        for entry in entries:
            lines += ["", f"[[{name}]]", *(_entry(key, value) for key, value in entry._asdict().items())]
    return "\n".join(lines) + "\n"


def from_toml(text: str) -> Regression:
    """What `to_toml` wrote."""
    data = tomllib.loads(text)
    options: dict[str, Any] = dict(data["options"])
    options["network"] = NetworkOptions(**options["network"])
    options["disk"] = DiskOptions(**options["disk"])
    script = Script([Fault(**each) for each in data.get("fault", [])], [Hit(**each) for each in data.get("hit", [])])
    return Regression(data["claim"], data["reaches"], Options(**options), script)


def load_all(directory: Path) -> Mapping[str, Regression]:
    """The regressions of a directory, by name."""
    return {path.stem: from_toml(path.read_text()) for path in sorted(directory.glob("*.toml"))}


def _entry(name: str, value: object) -> str:
    return f"{_text(name)} = {_value(value)}"


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return _text(value)
        case list() | tuple():
            return f"[{', '.join(map(_value, value))}]"
        case _:
            raise TypeError(f"no value for a regression's file: {value!r}")


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
