"""``meta.properties``: which broker of which cluster a log directory belongs to. See docs/formats/meta-properties.md.

Version 0 is that of the ZooKeeper days (``broker.id``) and the one that Moldau writes; version 1 is KRaft's (``node.id``,
``directory.id``). Both are read.
"""

from moldau.log.damage import DamagedFileError
from moldau.model.value import Value
from moldau.ports.filesystem import FileSystem

FILE_NAME = "meta.properties"
OURS = "made"
"""Moldau made the directory."""
ADOPTED = "adopted"
"""Moldau took the directory over, so that other systems' ways may be found in the logs: holes left by compaction."""
_LINE_START = 1
_ESCAPED = str.maketrans({character: f"\\{character}" for character in "\\=:#!"})
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class MetaProperties(Value):
    """What the file says. A version 0 may lack any of the rest."""

    version: int
    broker_id: int | None
    cluster_id: str | None
    directory_id: str | None = None
    moldau: str | None = None
    """`OURS` or `ADOPTED` where Moldau wrote the file; nobody else writes this property."""


def format_meta_properties(properties: MetaProperties) -> bytes:
    """The file's bytes, as Java's ``Properties`` reads them."""
    pairs = {
        "broker.id" if properties.version == 0 else "node.id": properties.broker_id,
        "cluster.id": properties.cluster_id,
        "directory.id": properties.directory_id,
        "moldau": properties.moldau,
        "version": properties.version,
    }
    lines = [f"{name}={_escape(str(value))}" for name, value in pairs.items() if value is not None]
    return "\n".join(("#", *lines, "")).encode()


def parse_meta_properties(data: bytes, path: str) -> MetaProperties:
    """What the file says. DamagedFileError for an unknown version, for a number that is none, and for what version 1 must have."""
    found: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(data.decode("latin-1").splitlines(), start=_LINE_START):
        if line.strip() and line.lstrip()[0] not in "#!":
            name, value = _split(line.strip())
            found[name] = (number, value)

    def integer(name: str) -> int | None:
        if name not in found:
            return None
        number, value = found[name]
        try:
            return int(value)
        except ValueError as error:
            raise DamagedFileError(path, f"line {number}", f"{name}={value!r} is not a number") from error

    def text(name: str) -> str | None:
        return found[name][1] if name in found else None

    version = integer("version") or 0
    if version not in (0, 1):
        raise DamagedFileError(path, f"line {found['version'][0]}", f"version {version} is neither 0 nor 1")
    properties = MetaProperties(
        version, integer("node.id" if version else "broker.id"), text("cluster.id"), text("directory.id"), text("moldau")
    )
    if version == 1 and (properties.broker_id is None or properties.cluster_id is None):
        raise DamagedFileError(path, "end of file", "version 1 without node.id or without cluster.id")
    return properties


def read_meta_properties(files: FileSystem, directory: str) -> MetaProperties | None:
    """What a log directory's file says; None if there is none. DamagedFileError, StorageError."""
    path = f"{directory}/{FILE_NAME}"
    try:
        data = files.read(path)
    except FileNotFoundError:
        return None
    return parse_meta_properties(data, path)


def _escape(value: str) -> str:
    return value.translate(_ESCAPED)


def _split(line: str) -> tuple[str, str]:
    """Name and value of a line: the first ``=``, ``:`` or blank that is not escaped parts them."""
    end = 0
    while end < len(line) and line[end] not in "=: \t":
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(" \t")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t")
    return _unescape(line[:end]), _unescape(rest)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    characters: list[str] = []
    rest = iter(text)
    for character in rest:
        if character == "\\":
            escaped = next(rest, "")
            characters.append(_ESCAPES.get(escaped, escaped))
        else:
            characters.append(character)
    return "".join(characters)
