"""The static layer of a broker's configuration: what a file, the environment and the command line say.

Later ones win: file, then ``MOLDAU_NUM_PARTITIONS=3``, then ``--set num.partitions=3``. A name that is not known, or a value that is not
allowed, is an error that says where it stands; nothing is skipped in silence.
"""

from collections.abc import Iterable, Mapping

from moldau.model.config.definition import InvalidConfigError, parse_value
from moldau.model.config.tables.broker import BROKER

ENVIRONMENT_PREFIX = "MOLDAU_"


class StaticConfig:
    """Texts by name, all of them checked. `origin` tells where each came from, for a person."""

    __slots__ = ("origin", "texts")

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.origin: dict[str, str] = {}

    def put(self, name: str, text: str, origin: str) -> None:
        """Set a value. InvalidConfigError, with `origin` before it, for an unknown name or a value that is not allowed."""
        definition = BROKER.get(name)
        if definition is None:
            raise InvalidConfigError(f"{origin}: {unknown_name(name, BROKER)}", name)
        try:
            parse_value(definition, text)
        except InvalidConfigError as error:
            raise InvalidConfigError(f"{origin}: {error.message}", name) from None
        self.texts[name] = text
        self.origin[name] = origin

    def without_effect(self) -> list[str]:
        """Names that were set to another value than their default though nothing in this version depends on them."""
        return sorted(
            name
            for name, text in self.texts.items()
            if not (definition := BROKER[name]).in_effect and parse_value(definition, text) != definition.default
        )


def read_static(
    *, file_text: str | None = None, file_name: str = "", environment: Mapping[str, str] | None = None, settings: Iterable[str] = ()
) -> StaticConfig:
    """Read the layers in order. `settings` are ``NAME=VALUE``. InvalidConfigError names file and line, variable, or setting."""
    static = StaticConfig()
    if file_text is not None:
        from moldau.model.config.file import read_file

        for entry in read_file(file_text, file_name):
            static.put(entry.name, entry.text, entry.origin)
    if environment:
        _read_environment(static, environment)
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise InvalidConfigError(f"--set {setting}: needs NAME=VALUE")
        static.put(name.strip(), text.strip(), f"--set {setting}")
    return static


def _read_environment(static: StaticConfig, environment: Mapping[str, str]) -> None:
    """Take MOLDAU_ variables. Other things have such variables too, so an unknown one is refused only when it looks like a slip."""
    variables = [name for name in environment if name.startswith(ENVIRONMENT_PREFIX)]
    if not variables:
        return
    names = {environment_name(name): name for name in BROKER}
    for variable in sorted(variables):
        name = names.get(variable)
        if name is not None:
            static.put(name, environment[variable], variable)
            continue
        near = near_names(variable, names)
        if near:
            raise InvalidConfigError(f"{variable}: no such variable, did you mean {near[0]}?", variable)


def environment_name(name: str) -> str:
    """The variable that sets `name`."""
    return ENVIRONMENT_PREFIX + name.upper().replace(".", "_")


def unknown_name(name: str, known: Iterable[str], what: str = "configuration") -> str:
    """A sentence about a name that is not known, with the nearest one that is."""
    near = near_names(name, known)
    return f"unknown {what} '{name}'" + (f", did you mean '{near[0]}'?" if near else "")


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Known names that `name` may be a slip of, nearest first."""
    from difflib import get_close_matches

    return get_close_matches(name, list(known), n=1, cutoff=0.85)
