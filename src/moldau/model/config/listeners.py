"""Listeners: names, addresses, advertised addresses and security protocols (KIP-103), each parsed and all checked together.

An address is ``NAME://HOST:PORT``, host perhaps empty (every interface) or an IPv6 address in brackets. Names are case-insensitive, as in
Kafka, and kept in capitals.
"""

from collections.abc import Callable, Iterable, Mapping
from string import ascii_letters, digits
from typing import NamedTuple

from moldau.model.config.definition import ConfigValue, InvalidConfigError, Validator
from moldau.model.host_port import parse_host_port
from moldau.model.value import Value

PLAINTEXT = "PLAINTEXT"
SECURITY_PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_NAME_LETTERS = frozenset(ascii_letters + digits + "._-")
EVERY_INTERFACE = ("", "0.0.0.0", "::", "*")
"""Hosts that mean all addresses of the machine: a broker can listen there, a client cannot connect there."""


class Listener(NamedTuple):
    """Where to listen, or which address to advertise. An empty host means every interface."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class Listeners(Value):
    """The listeners of a broker. Invariant: their names are unique, and every name below is one of theirs."""

    bound: tuple[Listener, ...]
    """Where to listen; port 0 is any free one, and may appear more than once."""
    advertised: Mapping[str, Listener]
    """Advertised addresses by listener, of those that have one; port 0 is the port that the listener has got."""
    inter_broker: str
    """The listener that other brokers use."""


def parse_listener(text: str) -> Listener:
    """Read one address; without a name it is PLAINTEXT's. ValueError says what is wrong with it."""
    name, separator, address = text.partition("://")
    if not separator:
        name, address = PLAINTEXT, text
    elif not _is_name(name):
        raise ValueError(f"'{text}': the name of a listener has letters, digits, '.', '_' and '-'")
    host, port = parse_host_port(address)
    return Listener(name.upper(), host, port)


def _is_name(text: str) -> bool:
    return bool(text) and _NAME_LETTERS.issuperset(text)


class ListenerAddresses(Validator):
    """Lists of addresses; at least one."""

    __slots__ = ()

    def allows(self, value: ConfigValue) -> bool:
        """Whether every item is an address."""
        return isinstance(value, tuple) and bool(value) and all(_is_address(item) for item in value)

    def __str__(self) -> str:
        return "of NAME://HOST:PORT"


def _is_address(text: str) -> bool:
    try:
        parse_listener(text)
    except ValueError:
        return False
    return True


class ProtocolMap(Validator):
    """Texts ``NAME:PROTOCOL,...``, each name once, with protocols that Kafka has."""

    __slots__ = ()

    def allows(self, value: ConfigValue) -> bool:
        """Whether it is such a text."""
        pairs = _protocol_pairs(value)
        return bool(pairs) and len(dict(pairs)) == len(pairs) and all(_is_name(name) and to in SECURITY_PROTOCOLS for name, to in pairs)

    def __str__(self) -> str:
        return "of NAME:PROTOCOL"


def _protocol_pairs(value: ConfigValue) -> list[tuple[str, str]]:
    if not isinstance(value, str):
        return []
    pairs = (item.partition(":") for item in value.upper().split(","))
    return [(name.strip(), protocol.strip()) for name, _, protocol in pairs]


def listeners_of(value: Callable[[str], ConfigValue]) -> Listeners:
    """The listeners of a configuration that has `value` under a name.

    InvalidConfigError, with the name of a setting, where the settings contradict each other or ask for what this version does not have.
    """
    bound = _parsed(value("listeners"))
    _check_bound(bound, dict(_protocol_pairs(value("listener.security.protocol.map"))))
    names = [each.name for each in bound]
    advertised = _parsed(value("advertised.listeners"))
    _check_advertised(advertised, names)
    inter_broker = value("inter.broker.listener.name")
    if isinstance(inter_broker, str):
        inter_broker = inter_broker.upper()
        if inter_broker not in names:
            raise _no_listener("inter.broker.listener.name", inter_broker, names)
    else:
        inter_broker = PLAINTEXT if PLAINTEXT in names else names[0]
    return Listeners(bound, {each.name: each for each in advertised}, inter_broker)


def _parsed(value: ConfigValue) -> tuple[Listener, ...]:
    return tuple(map(parse_listener, value)) if isinstance(value, tuple) else ()


def _check_bound(bound: Iterable[Listener], protocols: Mapping[str, str]) -> None:
    setting = "listeners"
    by_name: dict[str, Listener] = {}
    by_port: dict[int, Listener] = {}
    for each in bound:
        _check_name_is_new(setting, each, by_name)
        if each.port and by_port.setdefault(each.port, each) is not each:
            raise InvalidConfigError(f"{setting}: {by_port[each.port]} and {each} have the same port; give each listener its own", setting)
        protocol = protocols.get(each.name)
        if protocol is None:
            raise InvalidConfigError(
                f"{setting}: {each}: listener.security.protocol.map does not have {each.name}; add {each.name}:{PLAINTEXT}", setting
            )
        if protocol != PLAINTEXT:
            raise InvalidConfigError(
                f"{setting}: {each}: the listener's security protocol is {protocol}, this version has {PLAINTEXT} only", setting
            )


def _check_advertised(advertised: Iterable[Listener], names: list[str]) -> None:
    setting = "advertised.listeners"
    by_name: dict[str, Listener] = {}
    for each in advertised:
        _check_name_is_new(setting, each, by_name)
        if each.name not in names:
            raise _no_listener(setting, each.name, names)
        if each.host in EVERY_INTERFACE:
            host = f"'{each.host}'" if each.host else "an address without a host"
            raise InvalidConfigError(
                f"{setting}: {each}: clients cannot connect to {host}; advertise a name or address that they reach", setting
            )


def _check_name_is_new(setting: str, listener: Listener, by_name: dict[str, Listener]) -> None:
    if by_name.setdefault(listener.name, listener) is not listener:
        raise InvalidConfigError(
            f"{setting}: {by_name[listener.name]} and {listener} have the same name; give each listener its own", setting
        )


def _no_listener(setting: str, name: str, names: list[str]) -> InvalidConfigError:
    return InvalidConfigError(f"{setting}: there is no listener {name}, listeners has {', '.join(names)}", setting)
