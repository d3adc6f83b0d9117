"""Avro among the schema languages of the registry, and its rules of resolution: can data written with one schema be read with another?

The types of difference, the places and the extra words are those of Avro's Java library, which Confluent's registry passes on:

* READER_FIELD_MISSING_DEFAULT_VALUE: the reader has a field that the writer has not, and no default for it;
* TYPE_MISMATCH: neither the same type nor a promotion (int to long, float, double; long to float, double; float to double; string
  and bytes both ways);
* NAME_MISMATCH: records, enums or fixeds of different names; the last part of the name counts, or an alias of the reader's;
* MISSING_ENUM_SYMBOLS: the writer knows a symbol that the reader does not, and the reader has no default symbol;
* FIXED_SIZE_MISMATCH;
* MISSING_UNION_BRANCH: no branch of the reader can read the writer's type.

A pair of types that is being compared further up counts as readable: a recursive schema is readable unless something in it is not. What was
concluded from that while a branch of a union was tried may be wrong elsewhere, so the schemas are compared again, with the pairs known
that turned out unreadable, until nothing new turns up. (Java's library compares once.)
"""

from collections.abc import Sequence
from functools import cached_property

from moldau.registry.schemas.avro.parser import parse
from moldau.registry.schemas.avro.printer import named_within, normalize, printed
from moldau.registry.schemas.avro.types import (
    MISSING,
    ArrayType,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    NamedType,
    RecordField,
    RecordType,
    UnionType,
)
from moldau.registry.schemas.language import AVRO, COMPARED_PAIRS_MAX, Incompatibility, ParsedSchema, ResolvedReference, TooManyPairsError

_PROMOTIONS = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "bytes": frozenset({"string"}),
    "string": frozenset({"bytes"}),
}
"""By the reader's type: the writer's types that become it."""

Pair = tuple[int, int]
"""The identities of a reader and a writer type."""

type_name = str.upper


def check(reader: AvroType, writer: AvroType) -> list[Incompatibility]:
    """Every reason why `reader` cannot read what `writer` wrote."""
    unreadable: dict[Pair, list[Incompatibility]] = {}
    while True:
        pass_ = _Check(unreadable)
        found = pass_.pair(reader, writer, ())
        now = {pair: faults for pair, faults in pass_.compared.items() if faults}
        if not pass_.trusted_a_circle or now.keys() == unreadable.keys():
            return list(dict.fromkeys(found))
        unreadable = now


class _Check:
    """One pass over two schemas; remembers each pair of types, so that circles end and nothing is compared twice."""

    def __init__(self, unreadable: dict[Pair, list[Incompatibility]]) -> None:
        self.compared: dict[Pair, list[Incompatibility]] = {}
        self.trusted_a_circle = False
        self._unreadable = unreadable
        self._under_way: set[Pair] = set()

    def pair(self, reader: AvroType, writer: AvroType, path: tuple[str, ...]) -> list[Incompatibility]:
        key = (id(reader), id(writer))
        if key in self.compared:
            return self.compared[key]
        if key in self._under_way:
            if key not in self._unreadable:
                self.trusted_a_circle = True
            return self._unreadable.get(key, [])
        self._under_way.add(key)
        self.compared[key] = list(dict.fromkeys(self._compare(reader, writer, path)))  # one place, reported once for each path to it
        if len(self.compared) > COMPARED_PAIRS_MAX:
            raise TooManyPairsError
        self._under_way.discard(key)
        return self.compared[key]

    def _compare(self, reader: AvroType, writer: AvroType, path: tuple[str, ...]) -> list[Incompatibility]:
        match reader, writer:
            case UnionType(), UnionType():
                return self._branches(reader, writer, path)
            case _, UnionType():
                return [fault for index, branch in enumerate(writer.branches) for fault in self.pair(reader, branch, (*path, str(index)))]
            case UnionType(), _:
                return [] if self._some_branch_reads(reader, writer, path) else [_missing_branch(writer, path)]
            case ArrayType(), ArrayType():
                return self.pair(reader.items, writer.items, (*path, "items"))
            case MapType(), MapType():
                return self.pair(reader.values, writer.values, (*path, "values"))
            case FixedType(), FixedType():
                return _names(reader, writer, path) + _sizes(reader, writer, path)
            case EnumType(), EnumType():
                return _names(reader, writer, path) + _symbols(reader, writer, path)
            case RecordType(), RecordType():
                return _names(reader, writer, path) + self._fields(reader, writer, path)
        if reader.kind == writer.kind or writer.kind in _PROMOTIONS.get(reader.kind, ()):
            return []
        return [_mismatch(reader, writer, path)]

    def _branches(self, reader: UnionType, writer: UnionType, path: tuple[str, ...]) -> list[Incompatibility]:
        """Each branch of the writer needs a reader among those of the reader."""
        return [
            _missing_branch(branch, (*path, str(index)))
            for index, branch in enumerate(writer.branches)
            if not self._some_branch_reads(reader, branch, path)
        ]

    def _some_branch_reads(self, reader: UnionType, writer: AvroType, path: tuple[str, ...]) -> bool:
        return any(not self.pair(branch, writer, path) for branch in reader.branches)

    def _fields(self, reader: RecordType, writer: RecordType, path: tuple[str, ...]) -> list[Incompatibility]:
        written = {field.name: field for field in writer.fields}
        found = []
        for index, field in enumerate(reader.fields):
            here = (*path, "fields", str(index))
            matches = [written[name] for name in dict.fromkeys([field.name, *field.aliases]) if name in written]
            if not matches:
                if field.default is MISSING:
                    found.append(_no_default(field, here))
            elif len(matches) > 1:
                found.append(_ambiguous(field, matches, here))
            else:
                found += self.pair(field.type, matches[0].type, (*here, "type"))
        return found


def _names(reader: NamedType, writer: NamedType, path: tuple[str, ...]) -> list[Incompatibility]:
    if reader.name == writer.name or writer.full_name in reader.aliases:
        return []
    place = _place(*path, "name")
    return [
        Incompatibility("NAME_MISMATCH", place, f"The name of the schema has changed (path '{place}')", f"expected: {writer.full_name}")
    ]


def _sizes(reader: FixedType, writer: FixedType, path: tuple[str, ...]) -> list[Incompatibility]:
    if reader.size == writer.size:
        return []
    place = _place(*path, "size")
    sentence = f"The size of FIXED type field at path '{place}' in the {{reader}} schema does not match with the {{writer}} schema"
    return [Incompatibility("FIXED_SIZE_MISMATCH", place, sentence, f"expected: {writer.size}, found: {reader.size}")]


def _symbols(reader: EnumType, writer: EnumType, path: tuple[str, ...]) -> list[Incompatibility]:
    missing = sorted(set(writer.symbols) - set(reader.symbols))
    if not missing or reader.default is not None:
        return []
    place = _place(*path, "symbols")
    shown = f"[{', '.join(missing)}]"
    sentence = f"The {{reader}} schema is missing enum symbols '{shown}' at path '{place}' in the {{writer}} schema"
    return [Incompatibility("MISSING_ENUM_SYMBOLS", place, sentence, shown)]


def _mismatch(reader: AvroType, writer: AvroType, path: tuple[str, ...]) -> Incompatibility:
    place = _place(*path)
    sentence = f"The type (path '{place}') of a field in the {{reader}} schema does not match with the {{writer}} schema"
    additional = f"reader type: {type_name(reader.kind)} not compatible with writer type: {type_name(writer.kind)}"
    return Incompatibility("TYPE_MISMATCH", place, sentence, additional)


def _missing_branch(writer: AvroType, path: tuple[str, ...]) -> Incompatibility:
    place = _place(*path)
    sentence = f"The {{reader}} schema is missing a type inside a union field at path '{place}' in the {{writer}} schema"
    return Incompatibility("MISSING_UNION_BRANCH", place, sentence, f"reader union lacking writer type: {type_name(writer.kind)}")


def _no_default(field: RecordField, path: tuple[str, ...]) -> Incompatibility:
    place = _place(*path)
    sentence = (
        f"The field '{field.name}' at path '{place}' in the {{reader}} schema has no default value and is missing in the {{writer}} schema"
    )
    return Incompatibility("READER_FIELD_MISSING_DEFAULT_VALUE", place, sentence, field.name)


def _ambiguous(field: RecordField, matches: list[RecordField], path: tuple[str, ...]) -> Incompatibility:
    """Java's library throws here; a reader could take either field, so it can take none."""
    place = _place(*path)
    several = ", ".join(match.name for match in matches)
    sentence = (
        f"The field '{field.name}' at path '{place}' in the {{reader}} schema goes by several fields of the {{writer}} schema: {several}"
    )
    return Incompatibility("NAME_MISMATCH", place, sentence, f"expected one of: {several}")


def _place(*path: str) -> str:
    return "/" + "/".join(path)


class ParsedAvroSchema:
    """A valid Avro schema: its type, and the named types that it has from references."""

    language = AVRO

    def __init__(self, root: AvroType, referred: list[AvroType], references: tuple[ResolvedReference, ...]) -> None:
        self.root = root
        self._referred = referred
        self._references = references

    @property
    def name(self) -> str | None:
        """The full name of a record."""
        return self.root.full_name if isinstance(self.root, RecordType) else None

    @cached_property
    def canonical(self) -> str:
        """Avro's own text, with types of references as names."""
        return printed(self.root, self._known())

    def normalized(self) -> "ParsedAvroSchema":
        """Properties and aliases in the order of their names."""
        root, referred = parse(self.canonical, self._references, stored=True)
        normalize(root)
        return ParsedAvroSchema(root, referred, self._references)

    def formatted(self, form: str) -> str:
        """`resolved` puts the referred types where they are used first."""
        return printed(self.root) if form == "resolved" else self.canonical

    def check(self, older: ParsedSchema) -> list[Incompatibility]:
        """By Avro's rules of schema resolution."""
        assert isinstance(older, ParsedAvroSchema)
        return check(self.root, older.root)

    def _known(self) -> list[NamedType]:
        return [named for referred in self._referred for named in named_within(referred) if named is not self.root]


class AvroLanguage:
    """Reads Avro schemas."""

    name = AVRO

    def parse(self, text: str, references: Sequence[ResolvedReference] = (), *, stored: bool = False) -> ParsedAvroSchema:
        """Read a schema; InvalidSchemaError names the place of the fault."""
        root, referred = parse(text, references, stored=stored)
        return ParsedAvroSchema(root, referred, tuple(references))
