"""``moldau schema``: list, get, register, check and delete schemas, over the REST interface of any schema registry."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from moldau.cli.options import (
    DEFAULT_REGISTRY,
    NAME,
    ExistingPath,
    check_registry_url,
    json_option,
    naming_source,
    registry_option,
    registry_source,
    timeout_option,
)
from moldau.cli.output import counted, print_json, print_table, say, visible
from moldau.cli.terminal import verdict
from moldau.model.near_names import did_you_mean

if TYPE_CHECKING:
    from moldau.registry.client import RegisteredSchema, RegistryClient, SubjectVersion
    from moldau.registry.subjects import Reference

F = TypeVar("F", bound=Callable[..., Any])

TYPES = {"avro": "AVRO", "json": "JSON", "protobuf": "PROTOBUF"}
SUFFIXES = {".avsc": "AVRO", ".proto": "PROTOBUF"}
"""Suffixes of files that have a language."""
LATEST = "latest"


class Version(click.types.StringParamType):
    """``latest``, or a number from 1; with `every` also ``all``."""

    name = "version"

    def __init__(self, *, every: bool = False) -> None:
        self._words = (LATEST, "all") if every else (LATEST,)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word or the number's digits."""
        text = str(value)
        if text not in self._words and not (text.isascii() and text.isdigit() and 1 <= int(text) < 2**31):
            self.fail(f"{text!r} is neither {', '.join(self._words)} nor a number from 1", param, ctx)
        return text


def _references(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> "tuple[Reference, ...]":
    from moldau.registry.subjects import Reference

    found = []
    for text in values:
        name, _, rest = text.partition("=")
        subject, _, version = rest.rpartition(":")
        if not (name and subject and version.isascii() and version.isdigit()):
            raise click.BadParameter(f"{text!r} is not NAME=SUBJECT:VERSION", ctx, parameter)
        found.append(Reference(name, subject, int(version)))
    return tuple(found)


def _asking(function: F) -> F:
    """The options of every command: which registry, and for how long."""
    return timeout_option(10.0)(registry_option("The schema registry to ask.", DEFAULT_REGISTRY)(function))


def _schema_file(function: F) -> F:
    """A schema in a file: the parameters `file`, `kind` and `references`."""
    for decorate in (
        click.option(
            "--reference",
            "references",
            metavar="NAME=SUBJECT:VERSION",
            multiple=True,
            callback=_references,
            help="What the text calls NAME is this version of this subject; may be repeated.",
        ),
        click.option(
            "-t", "--type", "kind", type=click.Choice(list(TYPES)), help="Language of the text.  [default: by .avsc and .proto of the name]"
        ),
        click.argument("file", type=ExistingPath(dir_okay=False, allow_dash=True)),
    ):
        function = decorate(function)
    return function


@contextmanager
def _open(registry: str, timeout: float) -> "Iterator[RegistryClient]":
    from moldau.registry.client import RegistryClient

    source = registry_source(click.get_current_context())
    check_registry_url(registry, source)
    with naming_source(source), RegistryClient(registry, timeout_s=timeout) as client, _suggesting(client):
        yield client


@contextmanager
def _suggesting(client: "RegistryClient") -> Iterator[None]:
    """The error for a subject or a version that does not exist names its subject, and suggests the nearest one, or for a number --id."""
    from moldau.registry.client_errors import SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, RegistryError

    subject = click.get_current_context().params.get("subject")
    try:
        yield
    except RegistryError as error:
        if subject is None or error.code not in (SUBJECT_NOT_FOUND, VERSION_NOT_FOUND):
            raise
        known = client.subjects() if error.code == SUBJECT_NOT_FOUND else []
        where = "" if subject in error.message else f"subject {subject}: "
        is_id = error.code == SUBJECT_NOT_FOUND and subject.isascii() and subject.isdigit()
        by_id = f" (subjects go by name; for the schema with this id: moldau schema get --id {subject})" if is_id else ""
        message = f"{where}{error.message.rstrip('.')}{by_id}{did_you_mean(subject, known)}"
        raise RegistryError(error.status, error.code, message) from error


@click.group("schema")
def schema() -> None:
    """List, get, register, check and delete the schemas of a registry."""


@schema.command("list")
@click.argument("subject", type=NAME, required=False)
@click.option("--deleted", is_flag=True, help="Those that were deleted softly too.")
@json_option
@_asking
def list_(subject: str | None, deleted: bool, as_json: bool, registry: str, timeout: float) -> None:
    """List all subjects, or the versions of SUBJECT."""
    with _open(registry, timeout) as client:
        if subject is None:
            names = client.subjects(deleted=deleted)
            rows = [{"subject": name, "versions": client.versions(name, deleted=deleted)} for name in names]
            cells: list[tuple[object, ...]] = [(row["subject"], _ranges(row["versions"])) for row in rows]  # type: ignore[arg-type]
            columns: tuple[str, ...] = ("subject", "versions")
        else:
            versions = [client.version(subject, number) for number in client.versions(subject, deleted=deleted)]
            rows = [_described(each) for each in versions]
            cells = [(each.version, each.id, each.type, ", ".join(map(_reference, each.references)) or "-") for each in versions]
            columns = ("version", "id", "type", "references")
    if as_json:
        print_json(rows)
    else:
        print_table(columns, cells, numeric=("version", "id"))


@schema.command("get")
@click.argument("subject", type=NAME, required=False)
@click.option("-v", "--version", type=Version(), default=LATEST, show_default=True, help="latest, or a number.")
@click.option("--id", "schema_id", type=click.IntRange(0, 2**31 - 1), help="The schema of this id, instead of a subject's.")
@json_option
@_asking
def get(subject: str | None, version: str, schema_id: int | None, as_json: bool, registry: str, timeout: float) -> None:
    """Print the text of a schema; with --json subject, version, id, type and references too."""
    if (subject is None) == (schema_id is None):
        raise click.UsageError("give either SUBJECT or --id")
    with _open(registry, timeout) as client:
        found: RegisteredSchema | SubjectVersion
        if subject is None:
            found = client.schema(schema_id or 0)
        else:
            found = client.latest(subject) if version == LATEST else client.version(subject, int(version))
    if as_json:
        print_json(_described(found))
    else:
        click.echo(found.text)


@schema.command("register")
@click.argument("subject", type=NAME)
@_schema_file
@click.option("--normalize", is_flag=True, help="Compare and store it in its normal form.")
@click.option("--verbose", is_flag=True, help="Print everything that the registry reports about a schema that it refuses.")
@_asking
def register(
    subject: str,
    file: str,
    kind: str | None,
    references: "tuple[Reference, ...]",
    normalize: bool,
    verbose: bool,
    registry: str,
    timeout: float,
) -> None:
    """Make the schema in FILE ("-": standard input) the next version of SUBJECT, unless it is one already.

    \b
    moldau schema register orders-value order.avsc
    moldau schema register orders-value order.proto --reference money.proto=money:1
    """
    from moldau.registry.client_errors import IncompatibleSchemaError

    type_ = _type(file, kind)
    with _open(registry, timeout) as client:
        text = _read(file)
        try:
            schema_id = client.register(subject, text, type=type_, references=references, normalize=normalize)
        except IncompatibleSchemaError as error:
            _refuse(f"{subject}: {file}", "nothing was registered", error.reasons, verbose and error.message)
        found = client.lookup(subject, text, type=type_, references=references, normalize=normalize)
    say(f"{subject} version {found.version}, id {schema_id}")


@schema.command("check")
@click.argument("subject", type=NAME)
@_schema_file
@click.option("-v", "--version", type=Version(every=True), default="all", help="latest, a number, or all.  [default: by the level]")
@click.option("--verbose", is_flag=True, help="Print everything that the registry reports about it.")
@_asking
def check(
    subject: str,
    file: str,
    kind: str | None,
    references: "tuple[Reference, ...]",
    version: str,
    verbose: bool,
    registry: str,
    timeout: float,
) -> None:
    """Ask whether the schema in FILE could be the next version of SUBJECT: one line for each reason why not, and exit code 1."""
    with _open(registry, timeout) as client:
        level, text = client.compatibility(subject), _read(file)
        found = client.incompatibilities(
            subject, text, version=None if version == "all" else version, type=_type(file, kind), references=references
        )
        known = client.subjects()
    if found:
        from moldau.registry.client_errors import reasons

        messages = ", ".join(found)
        _refuse(f"{subject}: {file}", f"level {level}", reasons(messages, text), verbose and messages)
    click.echo(f"{visible(f'{subject}: {file}')} is {verdict('compatible', sys.stdout)} ({level})")
    if subject not in known:
        say(f"{subject} has no version to compare it with{did_you_mean(subject, known)}")


@schema.command("delete")
@click.argument("subject", type=NAME)
@click.option("-v", "--version", type=Version(), help="Only this one: latest, or a number; with --permanent a number.")
@click.option("--permanent", is_flag=True, help="For good: what was written with it may become unreadable.")
@_asking
def delete(subject: str, version: str | None, permanent: bool, registry: str, timeout: float) -> None:
    """Delete SUBJECT or one version: softly, so that its id still finds the schema, or permanently."""
    if permanent and version == LATEST:  # once that was deleted softly, it is the one before
        raise click.UsageError("--permanent needs the number of the version: the latest one is another one once that was deleted softly")
    with _open(registry, timeout) as client:
        if version is None:
            with _deleted_before(f"subject {subject}", subject):
                gone = _delete(lambda *, permanent: client.delete_subject(subject, permanent=permanent), permanent=permanent)
        else:
            number = str(client.latest(subject).version) if version == LATEST else version
            with _deleted_before(f"subject {subject}: version {number}", f"{subject} --version {number}"):
                gone = [_delete(lambda *, permanent: client.delete_version(subject, number, permanent=permanent), permanent=permanent)]
    how = "for good" if permanent else "softly; --permanent deletes for good"
    say(f"deleted {subject} {'version' if len(gone) == 1 else 'versions'} {_ranges(gone)} ({how})")


def _delete(step: Callable[..., Any], *, permanent: bool) -> Any:
    """A registry deletes permanently only what was deleted softly."""
    from moldau.registry.client_errors import RegistryError

    if permanent:
        try:
            step(permanent=False)
        except RegistryError as error:
            if error.code not in _DELETED_SOFTLY:
                raise
    return step(permanent=permanent)


_DELETED_SOFTLY = (40404, 40406)
"""Codes for a subject and a version of which that was done before."""


@contextmanager
def _deleted_before(what: str, arguments: str) -> Iterator[None]:
    """The error for what was deleted softly before names the command for it; the registry's names a parameter of REST."""
    from moldau.registry.client_errors import RegistryError

    try:
        yield
    except RegistryError as error:
        if error.code not in _DELETED_SOFTLY:
            raise
        message = f"{what} was deleted softly before; to delete it for good: moldau schema delete {arguments} --permanent"
        raise RegistryError(error.status, error.code, message) from error


def _refuse(what: str, note: str, found: Sequence[str], messages: str | Literal[False]) -> None:
    """Exit code 1, with the reasons that were found, or all `messages` of the registry."""
    head = f"Error: {visible(what)} is {verdict('not compatible', sys.stderr)} ({note}): {counted(len(found), 'reason')}"
    click.echo(head, err=True)
    for each in [messages] if messages else found:
        say(f"  {each}", err=True)
    click.get_current_context().exit(1)


def _type(file: str, kind: str | None) -> str:
    found = SUFFIXES.get(Path(file).suffix.lower()) if kind is None else TYPES[kind]
    if found is None:
        raise click.UsageError(f"{file}: --type is needed: {', '.join(TYPES)} (for files named .avsc and .proto it is known)")
    return found


def _read(file: str) -> str:
    with click.open_file(file, "rb") as opened:
        data: bytes = opened.read()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{file} is not UTF-8: byte 0x{data[error.start]:02x} at {error.start}") from error


def _described(found: "RegisteredSchema | SubjectVersion") -> dict[str, Any]:
    row = found._asdict()
    row["schema"] = row.pop("text")
    row["references"] = [each._asdict() for each in found.references]
    return dict(row)


def _reference(reference: "Reference") -> str:
    return f"{reference.name}={reference.subject}:{reference.version}"


def _ranges(numbers: list[int]) -> str:
    """``1-3, 5``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(f"{first}-{last}" if first != last else f"{first}" for first, last in parts)
