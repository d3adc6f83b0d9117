"""The file of a topology: jobs that feed each other, each made by a Python file. docs/streams-topologies.md is its reference."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from moldau.lake.session import parse_master
from moldau.model.host_port import parse_addresses
from moldau.model.toml_table import Table, kind_of, parse_document, read_document
from moldau.streams.names import parse_job_name
from moldau.topology.file import parse_name

_BOOTSTRAP: Final = "bootstrap"
_REGISTRY: Final = "registry"
_MASTER: Final = "master"
_ENVIRONMENT: Final = "environment"
BOOTSTRAP_VARIABLE, REGISTRY_VARIABLE = "MOLDAU_BOOTSTRAP", "MOLDAU_REGISTRY"


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job of a topology, as the file has it."""

    name: str
    """Of the job, by which its state is kept."""
    file: str
    """The Python file, as this process finds it."""
    environment: Mapping[str, str]
    """Of its process, beside what the supervisor's has."""
    line: int
    file_line: int
    """Where its file is named."""


@dataclass(frozen=True, slots=True)
class StreamTopology:
    """A file of jobs at one cluster."""

    name: str
    file: str
    bootstrap: str
    registry: str | None
    master: str | None
    """Of the Spark cluster that runs the tasks; None: this host."""
    jobs: tuple[PlannedJob, ...]


def read_stream_topology(path: Path) -> StreamTopology:
    """The topology of a file. PlanFileError names file and line."""
    return _topology(read_document(path))


def parse_stream_topology(text: str, file: str) -> StreamTopology:
    """The topology that this text describes; files of jobs are beside `file`. PlanFileError."""
    return _topology(parse_document(text, file))


def _topology(root: Table) -> StreamTopology:
    root.only("name", _BOOTSTRAP, _REGISTRY, _MASTER, _ENVIRONMENT, "jobs")
    if _BOOTSTRAP not in root:
        root.fail(_BOOTSTRAP, "is missing; it is the addresses of the cluster's brokers, HOST:PORT")
    bootstrap = root.parsed(_BOOTSTRAP, _addresses)
    registry = root.text(_REGISTRY) if _REGISTRY in root else None
    common = _variables(root.table(_ENVIRONMENT))
    common[BOOTSTRAP_VARIABLE] = bootstrap
    if registry is not None:
        common[REGISTRY_VARIABLE] = registry
    master = root.parsed(_MASTER, parse_master) if _MASTER in root else None
    tables = dict(root.named_tables("jobs", (_ENVIRONMENT,)))
    if not tables:
        root.fail("jobs", "is missing; each job is a table with its name, as [jobs.airport-hours]")
    folder = os.path.dirname(root.file)
    jobs = tuple(_job(name, table, folder, common) for name, table in tables.items())
    return StreamTopology(root.parsed("name", parse_name), root.file, bootstrap, registry, master, jobs)


def _job(name: str, table: Table, folder: str, common: Mapping[str, str]) -> PlannedJob:
    table.only("file", _ENVIRONMENT)
    try:
        parse_job_name(name)
    except ValueError as error:
        table.fail_here(str(error))
    path = os.path.join(folder, table.text("file"))
    if not os.path.isfile(path):
        table.fail("file", f"there is no file {path}")
    return PlannedJob(name, path, {**common, **_variables(table.table(_ENVIRONMENT))}, table.line(), table.line("file"))


def _variables(table: Table) -> dict[str, str]:
    found = {}
    for name in table:
        value = table.raw(name)
        if not isinstance(value, str):
            table.fail(name, f"must be a text, not {kind_of(value)}")
        if name in (BOOTSTRAP_VARIABLE, REGISTRY_VARIABLE):
            table.fail(name, f"is given by the key {_BOOTSTRAP if name == BOOTSTRAP_VARIABLE else _REGISTRY}")
        found[name] = value
    return found


def _addresses(text: str) -> str:
    parse_addresses(text)
    return text
