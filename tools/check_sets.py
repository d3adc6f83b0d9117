"""Refuse code whose result depends on the order of a set: `python tools/check_sets.py [FILE ...]`.

The order of a set depends on PYTHONHASHSEED and on addresses in memory. Code that walks over one does another thing in the next run of
the same seed. So below the adapters nothing does: where the order shows, a dict with None for its values keeps that of insertion.

Mypy's own build says which expressions are sets. Refused is a set

- in `for`, in `yield from`, unpacked with `*` or into a tuple, and in a comprehension that is not a set's;
- as a result or a variable that is annotated as an `Iterable` or a `Collection`, and as an argument where one is taken (`list`, `iter`,
  `str.join`, `dict.fromkeys`, `deque.extend`, any function of ours);
- in a text: `str`, `repr`, an f-string, a line of a log; and `pop`.

Allowed is what gives the same for every order: `sorted`, `len`, `min`, `max`, `sum`, `any`, `all`, `set`, `frozenset`, a set's own methods
and a set display. With `key=` the first three are refused: elements of the same key keep the order of the set.
"""

import ast
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from mypy import build, nodes
from mypy.argmap import map_actuals_to_formals
from mypy.errors import CompileError
from mypy.main import process_options
from mypy.modulefinder import BuildSource
from mypy.types import AnyType, CallableType, Instance, Overloaded, Type, TypeOfAny, TypeVarType, UnionType, get_proper_type

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
CACHE = ROOT / ".mypy_cache" / "sets"
"""Not mypy's own: it would find other texts there than in the files, and begin from nothing."""
PACKAGES = ("model", "ports", "protocol", "log", "cluster", "broker")
FIRST_LINE = 100_000
"""Further down than any line of a module that is imported and not checked."""

_SETS = ("builtins.set", "builtins.frozenset")
_ABSTRACT_SETS = ("typing.AbstractSet", "typing.MutableSet")
_ORDER_FREE = ("sorted", "len", "min", "max", "sum", "any", "all", "set", "frozenset")
_PASSED_ON = ("map", "filter")
_TEXTS = ("str", "repr", "ascii", "format")

Span = tuple[int, int, int | None, int | None]
"""Line and column of an expression's first character, and of its end."""


class Finding(NamedTuple):
    """A place where the order of a set shows."""

    path: str
    line: int
    column: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.what}"


def is_set(kind: Type | None) -> bool:
    """Whether values of that type are sets, or may be. The keys of a dict are none: they have an order."""
    proper = get_proper_type(kind)
    if isinstance(proper, UnionType):
        return any(is_set(item) for item in proper.items)
    if isinstance(proper, TypeVarType):
        return is_set(proper.upper_bound)
    if not isinstance(proper, Instance):
        return False
    return proper.type.fullname in _ABSTRACT_SETS or any(base.fullname in _SETS for base in proper.type.mro)


def takes_iterable(formal: Type) -> bool:
    """Whether a parameter of that type takes an iterable that need not be a set."""
    proper = get_proper_type(formal)
    if isinstance(proper, UnionType):
        return any(takes_iterable(item) for item in proper.items)
    return isinstance(proper, Instance) and proper.type.get("__iter__") is not None and not is_set(proper)


class Types:
    """The types of the expressions of all files, as mypy found them.

    Mypy does not say of an expression which file it is in. So that the line says it, mypy gets each file with so many empty lines before it
    that no two files have a line in common.
    """

    def __init__(self, found: Mapping[nodes.Expression, Type]) -> None:
        self._at: dict[Span, list[Type]] = {}
        for expression, kind in found.items():
            self._at.setdefault((expression.line, expression.column, expression.end_line, expression.end_column), []).append(kind)

    def of(self, expression: ast.expr, first_line: int) -> list[Type]:
        """The types of an expression: of a set comprehension also that of the generator in it."""
        end = None if expression.end_lineno is None else expression.end_lineno + first_line
        return self._at.get((expression.lineno + first_line, expression.col_offset, end, expression.end_col_offset), [])


class SetVisitor(ast.NodeVisitor):
    """Collects the `findings` of one file."""

    def __init__(self, path: str, types: Types, first_line: int) -> None:
        self.findings: list[Finding] = []
        self._path = path
        self._types = types
        self._first_line = first_line
        self._order_free: set[ast.expr] = set()
        """Expressions whose order nobody sees: what is around them gives the same for every order."""

    def _is_set(self, expression: ast.expr) -> bool:
        return any(is_set(kind) for kind in self._types.of(expression, self._first_line))

    def _check(self, expression: ast.expr, what: str) -> None:
        if self._is_set(expression):
            self.findings.append(Finding(self._path, expression.lineno, expression.col_offset + 1, f"the order of a set shows: {what}"))

    def visit_For(self, node: ast.For) -> None:
        """Check what a loop walks over."""
        self._check(node.iter, "for")
        self.generic_visit(node)

    def _visit_comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        for each in node.generators:
            if node in self._order_free or isinstance(node, ast.SetComp):
                self._order_free.add(each.iter)
            else:
                self._check(each.iter, "comprehension")
        self.generic_visit(node)

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = _visit_comprehension  # noqa: N815

    def visit_Set(self, node: ast.Set) -> None:
        """Allow sets unpacked into a set."""
        self._order_free.update(node.elts)
        self.generic_visit(node)

    def visit_Starred(self, node: ast.Starred) -> None:
        """Check what is unpacked into a list, a tuple or arguments."""
        if node not in self._order_free:
            self._check(node.value, "*")
        self.generic_visit(node)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> None:
        """Check what a generator yields from."""
        self._check(node.value, "yield from")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Check what is unpacked into variables."""
        if any(isinstance(target, ast.Tuple | ast.List) for target in node.targets):
            self._check(node.value, "unpacking")
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Check what a variable hides."""
        if node.value is not None and _hides(node.annotation):
            self._check(node.value, "assigned to another type")
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Check what a function hides from its callers."""
        if _hides(node.returns):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return) and inner.value is not None:
                    self._check(inner.value, "returned as another type")
        self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_FormattedValue(self, node: ast.FormattedValue) -> None:
        """Check what stands in an f-string. Mypy has it begin where the text does."""
        node.value.lineno, node.value.col_offset = node.lineno, node.col_offset
        self._check(node.value, "text")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Check the arguments of a call, and `pop`."""
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        has_key = any(keyword.arg == "key" for keyword in node.keywords)
        if (name in _ORDER_FREE and not has_key) or (name in _PASSED_ON and node in self._order_free):
            self._order_free.update(node.args)
        elif isinstance(node.func, ast.Attribute) and self._is_set(node.func.value):
            if node.func.attr == "pop":
                self._check(node.func.value, "pop")
            self._order_free.update(node.args)
        elif name in _ORDER_FREE or name in _TEXTS:
            for argument in node.args:
                self._check(argument, name)
        else:
            for argument in self._seen_by_callee(node):
                self._check(argument, "argument of a call")
        self.generic_visit(node)

    def _seen_by_callee(self, call: ast.Call) -> Iterable[ast.expr]:
        """The arguments that the callee takes for an iterable, or makes a text of."""
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        names = [*(None for _ in call.args), *(keyword.arg for keyword in call.keywords)]
        kinds = [
            *(nodes.ARG_STAR if isinstance(argument, ast.Starred) else nodes.ARG_POS for argument in call.args),
            *(nodes.ARG_STAR2 if keyword.arg is None else nodes.ARG_NAMED for keyword in call.keywords),
        ]
        unknown = AnyType(TypeOfAny.special_form)
        seen: dict[ast.expr, None] = {}
        for signature in self._signatures(call.func):
            mapped = map_actuals_to_formals(kinds, names, signature.arg_kinds, signature.arg_names, lambda _: unknown)
            for formal, kind, actuals in zip(signature.arg_types, signature.arg_kinds, mapped, strict=True):
                if takes_iterable(formal) or (kind is nodes.ARG_STAR and _is_object(formal)):
                    seen.update((arguments[actual], None) for actual in actuals)
        return seen

    def _signatures(self, callee: ast.expr) -> Iterable[CallableType]:
        for kind in self._types.of(callee, self._first_line):
            proper = get_proper_type(kind)
            if isinstance(proper, Overloaded):
                yield from proper.items
            elif isinstance(proper, CallableType):
                yield proper


def _hides(annotation: ast.expr | None) -> bool:
    """Whether a set could stand there without being called one."""
    return annotation is not None and any(name in ast.unparse(annotation) for name in ("Iterable", "Collection"))


def _is_object(kind: Type) -> bool:
    proper = get_proper_type(kind)
    return isinstance(proper, Instance) and proper.type.fullname == "builtins.object"


def _module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts if path.is_relative_to(SOURCE) else (path.stem,)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def find(paths: Iterable[Path]) -> list[Finding]:
    """What is refused in these files. CompileError if they have other errors: where mypy stops, types are missing.

    The texts are handed over: mypy would take an unchanged file out of its cache, where expressions have no types.
    """
    texts = {path: path.read_text() for path in paths}
    first_lines: dict[Path, int] = {}
    lines = FIRST_LINE
    for path, text in texts.items():
        first_lines[path] = lines
        lines += text.count("\n") + 1
    sources = [BuildSource(str(path), _module_of(path), "\n" * first_lines[path] + text) for path, text in texts.items()]
    _, options = process_options(["--config-file", str(ROOT / "pyproject.toml"), str(ROOT / "tools")])
    options.cache_dir = str(CACHE)
    options.export_types = True
    options.native_parser = False  # it would read the files itself
    result = build.build(sources, options)
    if result.errors:
        raise CompileError(result.errors)
    types = Types(result.types)
    findings = []
    for path, text in texts.items():
        visitor = SetVisitor(str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path), types, first_lines[path])
        visitor.visit(ast.parse(text))
        findings.extend(visitor.findings)
    return findings


def main(arguments: list[str]) -> int:
    """Print what is refused; whether there was any."""
    paths = [Path(argument).resolve() for argument in arguments]
    if not paths:
        paths = [path for package in PACKAGES for path in sorted((SOURCE / "moldau" / package).rglob("*.py"))]
    try:
        findings = find(paths)
    except CompileError as error:
        print("\n".join(error.messages))
        return 2
    for finding in findings:
        print(finding)
    print(f"sets: {len(findings)} found in {len(paths)} files")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
