"""Moldau's texts of Avro schemas and its verdicts on them are those of Avro's Java library, which is inside Confluent's registry.

The judge is the Avro that comes with PySpark, in a Java process of its own. Pairs of random schemas: a reader, and a writer that is the
reader with some changes, or another schema altogether.
"""

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.registry.schemas.avro.language import AvroLanguage

pytestmark = pytest.mark.system

AVRO = AvroLanguage()
PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
SEED = 20110612
PAIRS = 400


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    """Java's classes by name."""
    if shutil.which("java") is None:
        pytest.skip("there is no Java")
    py4j = pytest.importorskip("py4j.java_gateway")
    jars = Path(pytest.importorskip("pyspark").__file__).parent / "jars"
    wanted = [jar for pattern in ("avro-1*.jar", "jackson-*.jar", "slf4j*.jar", "commons-*.jar") for jar in jars.glob(pattern)]
    (bridge,) = jars.glob("py4j*.jar")
    port, process = py4j.launch_gateway(classpath=":".join(map(str, wanted)), jarpath=str(bridge), die_on_exit=True, return_proc=True)
    gateway = py4j.JavaGateway(gateway_parameters=py4j.GatewayParameters(port=port))
    yield gateway.jvm.org.apache.avro
    gateway.shutdown()
    process.stdin.close()  # the gateway's own threads read its output to the end, and close that
    process.wait(timeout=60)


class Dice:
    """Random schemas, and changes to them; a name is defined once in a schema."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def schema(self, names: set[str], depth: int = 0, *, in_union: bool = False) -> Any:
        kind = self.random.choice(["primitive"] * 4 + ["array", "map", "union", "fixed", "enum", "record", "record"])
        if depth > 2 or kind == "primitive" or (kind == "union" and in_union):
            return self.random.choice(PRIMITIVES)
        if kind in ("array", "map"):
            return {"type": kind, {"array": "items", "map": "values"}[kind]: self.schema(names, depth + 1)}
        if kind == "union":
            branches = [self.schema(names, depth + 1, in_union=True) for _ in range(self.random.randint(1, 3))]
            return list({self.key(branch): branch for branch in branches}.values())
        return self.named(kind, names, depth, in_union)

    def named(self, kind: str, names: set[str], depth: int, in_union: bool) -> Any:
        name = self.random.choice("ABCDEFGH")
        if name in names:
            return "int" if in_union else name
        names.add(name)
        schema: dict[str, Any] = {"type": kind, "name": name, **self.sometimes({"aliases": [self.random.choice("ABCD")]})}
        if kind == "fixed":
            return {**schema, "size": self.random.randint(1, 2)}
        if kind == "enum":
            symbols = self.random.sample("XYZ", self.random.randint(1, 3))
            return {**schema, "symbols": symbols, **self.sometimes({"default": symbols[0]})}
        return {**schema, "fields": [self.field(name, names, depth) for name in self.random.sample("abcd", self.random.randint(0, 3))]}

    def field(self, name: str, names: set[str], depth: int) -> dict[str, Any]:
        field = {"name": name, "type": self.schema(names, depth + 1), **self.sometimes({"doc": "é", "order": "ignore", "unit": 1.0e-5})}
        default = self.sometimes({"default": 1}) if field["type"] in ("int", "long") else {}
        return {**field, **default, **self.sometimes({"aliases": [self.random.choice("efgh")]})}

    def sometimes(self, attributes: dict[str, Any]) -> dict[str, Any]:
        return attributes if self.random.random() < 0.2 else {}

    def change(self, schema: Any) -> Any:
        if isinstance(schema, str):
            return self.random.choice(PRIMITIVES[2:]) if schema in PRIMITIVES and self.random.random() < 0.15 else schema
        if isinstance(schema, list):
            return schema[self.random.randint(0, 1) :] or schema
        changed = dict(schema)
        for part in ("items", "values"):
            if part in schema:
                changed[part] = self.change(schema[part])
        if schema["type"] == "enum" and self.random.random() < 0.3:
            changed["symbols"] = [*schema["symbols"], "W"]
        if schema["type"] == "fixed" and self.random.random() < 0.3:
            changed["size"] = 3
        if schema["type"] == "record":
            fields = [{**field, "type": self.change(field["type"])} for field in schema["fields"]]
            changed["fields"] = [{name: value for name, value in field.items() if name != "default"} for field in fields]
        return changed

    @staticmethod
    def key(branch: Any) -> str:
        return branch if isinstance(branch, str) else str(branch.get("name", branch["type"]))


def parsed(java: Any, text: str) -> Any:
    """As a registry reads a new schema; None if Java refuses it, as where a name stands that was dropped with a branch of a union."""
    import py4j.protocol

    parser = java.Schema.Parser(java.NameValidator.STRICT_VALIDATOR)
    parser.setValidateDefaults(True)
    try:
        return parser.parse(text)
    except py4j.protocol.Py4JJavaError:
        return None


def java_differences(java: Any, reader: Any, writer: Any) -> set[tuple[str, str, str]]:
    result = java.SchemaCompatibility.checkReaderWriterCompatibility(reader, writer).getResult()
    return {(str(each.getType()), each.getLocation(), each.getMessage()) for each in result.getIncompatibilities()}


def known_exception(difference: tuple[str, str, str]) -> bool:
    """A field of an enum with a default symbol that the writer has not: Java compares the enum with the writer's record."""
    return difference[0] == "TYPE_MISMATCH" and difference[2] == "reader type: ENUM not compatible with writer type: RECORD"


def test_texts_and_verdicts_are_those_of_java(java: Any) -> None:
    print(f"seed {SEED}")
    dice = Dice(SEED)
    compared = incompatible = 0
    for _ in range(PAIRS):
        tree = dice.schema(set())
        texts = [json.dumps(tree), json.dumps(dice.change(tree) if dice.random.random() < 0.8 else dice.schema(set()))]
        reader, writer = (parsed(java, text) for text in texts)
        if reader is None or writer is None:
            continue
        ours = [AVRO.parse(text) for text in texts]
        assert [schema.canonical for schema in ours] == [reader.toString(), writer.toString()]
        theirs = java_differences(java, reader, writer)
        if any(map(known_exception, theirs)):
            continue
        assert {(each.type, each.path, each.additional) for each in ours[0].check(ours[1])} == theirs, texts
        compared += 1
        incompatible += bool(theirs)
    assert compared > PAIRS / 2
    assert incompatible > PAIRS / 20
