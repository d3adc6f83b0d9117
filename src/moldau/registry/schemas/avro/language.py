"""Avro among the schema languages of the registry."""

from collections.abc import Sequence
from functools import cached_property

from moldau.registry.schemas.avro.compatibility import check
from moldau.registry.schemas.avro.parser import parse
from moldau.registry.schemas.avro.printer import named_within, normalize, printed
from moldau.registry.schemas.avro.types import AvroType, NamedType, RecordType
from moldau.registry.schemas.language import AVRO, Incompatibility, ParsedSchema, ResolvedReference


class AvroSchema:
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

    def normalized(self) -> "AvroSchema":
        """Properties and aliases in the order of their names."""
        root, referred = parse(self.canonical, self._references, stored=True)
        normalize(root)
        return AvroSchema(root, referred, self._references)

    def formatted(self, form: str) -> str:
        """`resolved` puts the referred types where they are used first."""
        return printed(self.root) if form == "resolved" else self.canonical

    def check(self, older: ParsedSchema) -> list[Incompatibility]:
        """By Avro's rules of schema resolution."""
        assert isinstance(older, AvroSchema)
        return check(self.root, older.root)

    def _known(self) -> list[NamedType]:
        return [named for referred in self._referred for named in named_within(referred) if named is not self.root]


class AvroLanguage:
    """Reads Avro schemas."""

    name = AVRO

    def parse(self, text: str, references: Sequence[ResolvedReference] = (), *, stored: bool = False) -> AvroSchema:
        """Read a schema; InvalidSchemaError names the place of the fault."""
        root, referred = parse(text, references, stored=stored)
        return AvroSchema(root, referred, tuple(references))
