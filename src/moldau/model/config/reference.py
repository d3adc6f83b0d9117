"""The reference page of all configurations, written from the table of definitions.

``python -m moldau.model.config.reference docs/configuration.md`` writes it; a test compares it with the table.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from moldau.model.config.definition import ConfigDefinition, describe_allowed, format_value
from moldau.model.config.tables import BROKER
from moldau.model.config.tables.coordinators import COORDINATORS
from moldau.model.config.tables.logs import LOGS
from moldau.model.config.tables.network import NETWORK
from moldau.model.config.tables.registry import REGISTRY
from moldau.model.config.tables.topic import TOPIC

USAGE = "usage: python -m moldau.model.config.reference PAGE\nWrites the page of all configurations there."

_INTRODUCTION = """\
# Configuration

This page is written from the table of definitions (`python -m moldau.model.config.reference docs/configuration.md`).

Names, types, ranges and defaults are those of Apache Kafka 4.3; [where they differ](#where-we-differ) says where not, and why.

## How to set

A broker takes its configuration from three places; the later wins:

1. a file, `moldau serve --config broker.toml`: TOML with bare dotted keys, `num.partitions = 3`. Tables (`[log]`) and quoted keys work too.
   A file whose name ends with `.properties` is read as Apache Kafka reads its `server.properties`;
2. the environment: `MOLDAU_NUM_PARTITIONS=3`, the name in capitals with underscores for dots;
3. the command line: `moldau serve --set num.partitions=3`, as often as needed.

A name that is not known, or a value that is not allowed, stops the start with a line that says where it stands and what is allowed.
A setting that Kafka has and this version does not is named with the reason. In a `server.properties`, what changes nothing for clients
here (`process.roles`, `metric.reporters`, listeners of a controller, ...) is ignored with a line in the log; what
would be dangerous to ignore (`ssl.*`, `sasl.*`, `authorizer.class.name`, ...) stops the start.

While a broker runs, `moldau config` and every Kafka tool (AlterConfigs, IncrementalAlterConfigs) change what is not read-only: for this
broker, or for all brokers. Such a change holds at once and is kept over a restart. A topic's own configurations are given when it is
created, or changed later in the same way.

Which value holds, first match wins:

| for a topic | for a broker |
|---|---|
| the topic's own value | this broker's dynamic value |
| the four on the right, for the topic configuration's synonyms | the dynamic value of all brokers |
| | file, environment, command line |
| | the default |

Within each of these places a configuration comes before its synonyms, these in the order given below.

Settings that bound what clients may take, and what clients see at the bound: [limits](limits.md).

† marks what is known, so that tools which read it work and files may carry it, but has no effect in this version. The broker's log says so
when one is set to another value than its default: at the start, for a topic, and while the broker runs.
"""


def render() -> str:
    """The page."""
    everything = [*TOPIC.values(), *BROKER.values()]
    return "\n".join(
        [
            _INTRODUCTION,
            "## Where we differ",
            "",
            "Names that Kafka has too:",
            "",
            *_deviations(each for each in everything if each.deviation and not each.own),
            "Names of our own:",
            "",
            *_deviations(each for each in everything if each.own),
            "## Topics",
            "",
            *_table(TOPIC.values(), of_topics=True),
            "## Brokers: identity, connections, requests",
            "",
            *_table(NETWORK.values()),
            "## Brokers: logs",
            "",
            *_table(LOGS.values()),
            "## Brokers: replication, producers, groups, transactions",
            "",
            *_table(COORDINATORS.values()),
            "## Schema registry beside a broker",
            "",
            *_table(REGISTRY.values()),
        ]
    )


def _deviations(definitions: Iterable[ConfigDefinition]) -> list[str]:
    rows = [f"| `{each.name}` | {_default(each)} | {each.deviation} |" for each in definitions]
    return ["| name | default | why |", "|---|---|---|", *rows, ""]


def _table(definitions: Iterable[ConfigDefinition], *, of_topics: bool = False) -> list[str]:
    rows = [_row(each, of_topics) for each in sorted(definitions, key=lambda each: each.name)]
    last = "the broker's synonyms" if of_topics else "while it runs"
    return [f"| name | type and range | default | {last} | meaning |", "|---|---|---|---|---|", *rows, ""]


def _row(definition: ConfigDefinition, of_topics: bool) -> str:
    mark = "" if definition.in_effect else " †"
    meaning = definition.doc
    names = ", ".join(f"`{synonym.name}`" for synonym in definition.synonyms)
    if of_topics:
        changing = names
    else:
        changing = definition.mode.value
        meaning += f" Synonyms: {names}." if names else ""
    return f"| `{definition.name}`{mark} | {describe_allowed(definition)} | {_default(definition)} | {changing} | {meaning} |"


def _default(definition: ConfigDefinition) -> str:
    text = format_value(definition, definition.default)
    if text is None:
        return "none"
    return f"`{text}`" if text else "empty"


def main(arguments: Sequence[str]) -> int:
    """Write the page; the exit code."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        wants_help = any(argument in ("-h", "--help") for argument in arguments)
        (sys.stdout if wants_help else sys.stderr).write(f"{USAGE}\n")
        return 0 if wants_help else 2
    Path(arguments[0]).write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
