"""The static layer of a broker's configuration: what a file, the environment and the command line say.

Later ones win: file, then ``MOLDAU_NUM_PARTITIONS=3``, then ``--set num.partitions=3``. A name that is not known, or a value that is not
allowed, is an error that says where it stands; nothing is skipped in silence. Nor are settings that contradict each other.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from moldau.model.config.definition import ConfigDefinition, ConfigValue, InvalidConfigError, parse_value
from moldau.model.config.listeners import listeners_of
from moldau.model.config.tables import BROKER
from moldau.model.near_names import nearest

if TYPE_CHECKING:
    from moldau.model.config.kafka_names import MissingSetting

ENVIRONMENT_PREFIX = "MOLDAU_"


class StaticConfig:
    """Texts by name, all of them checked. `origin` says where each came from, for a person.

    `passed_over`: settings of a ``server.properties`` that Kafka has and this version does not, as ``file:line: name: reason``.
    """

    __slots__ = ("origin", "passed_over", "texts")

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.origin: dict[str, str] = {}
        self.passed_over: list[str] = []

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
        return without_effect(self.texts, BROKER)


def without_effect(texts: Mapping[str, str], definitions: Mapping[str, ConfigDefinition]) -> list[str]:
    """Which of these settings, whose values are allowed, differ from their default though nothing in this version depends on them."""
    return sorted(
        name
        for name, text in texts.items()
        if (definition := definitions.get(name)) is not None
        and not definition.in_effect
        and parse_value(definition, text) != definition.default
    )


def read_static(
    *, file_text: str | None = None, file_name: str = "", environment: Mapping[str, str] | None = None, settings: Iterable[str] = ()
) -> StaticConfig:
    """Read the layers in order. `settings` are ``NAME=VALUE``. InvalidConfigError names file and line, variable, or setting."""
    static = StaticConfig()
    if file_text is not None:
        _read_file(static, file_text, file_name)
    if environment:
        _read_environment(static, environment)
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise InvalidConfigError(f"--set {setting}: needs NAME=VALUE")
        static.put(name.strip(), text.strip(), f"--set {setting}")
    _check_listeners(static)
    _check_metadata_store(static)
    return static


def _check_listeners(static: StaticConfig) -> None:
    def value(name: str) -> ConfigValue:
        text = static.texts.get(name)
        return BROKER[name].default if text is None else parse_value(BROKER[name], text)

    try:
        listeners_of(value)
    except InvalidConfigError as error:
        if error.name in static.origin:
            raise InvalidConfigError(f"{static.origin[error.name]}: {error.message}", error.name) from None
        raise


def _check_metadata_store(static: StaticConfig) -> None:
    """The coordination tree is in one place."""
    places = [static.origin[name] for name in ("zookeeper.connect", "metadata.store.file") if name in static.texts]
    if len(places) > 1:
        reason = "metadata is in a file or in ZooKeeper; set metadata.store.file or zookeeper.connect, not both"
        raise InvalidConfigError(f"{places[1]}: {reason} (zookeeper.connect is given by {places[0]})", "metadata.store.file")


def _read_file(static: StaticConfig, text: str, file_name: str) -> None:
    if not file_name.endswith(".properties"):
        from moldau.model.config.file import read_file

        for entry in read_file(text, file_name):
            static.put(entry.name, entry.text, entry.origin)
        return
    from moldau.model.config.file import read_properties

    for entry in read_properties(text, file_name):
        missing = None if entry.name in BROKER else _missing(entry.name, near_names(entry.name, BROKER))
        if missing is not None and missing.may_pass:
            static.passed_over.append(f"{entry.origin}: {entry.name}: {missing.reason}")
        else:
            static.put(entry.name, entry.text, entry.origin)


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
    """A sentence about a name that is not known: that Kafka has it and this version does not, or the nearest name that is known."""
    near = near_names(name, known)
    missing = _missing(name, near)
    if missing is not None:
        return f"{what} '{name}' of Apache Kafka does not exist in this version: {missing.reason}"
    return f"unknown {what} '{name}'" + (f", did you mean '{near[0]}'?" if near else "")


def _missing(name: str, near: Sequence[str]) -> "MissingSetting | None":
    """The reason why Kafka's setting `name` is not here, unless it is a slip of a name that is."""
    from moldau.model.config.kafka_names import NAMES, absent

    return None if near and name not in NAMES else absent(name)


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Known names that `name` may be a slip of, nearest first."""
    found = nearest(name, known, likeness_min=0.85)
    return [] if found is None else [found]
