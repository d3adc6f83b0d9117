"""The settings of listeners are checked together: what a start could not keep, or clients could not use, is refused in one line."""

import pytest

from moldau.model.config import BrokerConfig, InvalidConfigError, read_static
from moldau.model.config.listeners import Listener, Listeners, listeners_of

TWO = ("listeners=INTERNAL://:9092,EXTERNAL://127.0.0.1:9093", "listener.security.protocol.map=INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT")


def read(*settings: str) -> Listeners:
    return listeners_of(BrokerConfig(read_static(settings=settings)).value)


def test_without_settings_there_is_one_listener_on_loopback() -> None:
    assert read() == Listeners((Listener("PLAINTEXT", "localhost", 9092),), {}, "PLAINTEXT")


def test_each_listener_has_a_name_an_address_and_perhaps_an_advertised_one() -> None:
    assert read(*TWO, "advertised.listeners=EXTERNAL://broker.example:19093", "inter.broker.listener.name=EXTERNAL") == Listeners(
        (Listener("INTERNAL", "", 9092), Listener("EXTERNAL", "127.0.0.1", 9093)),
        {"EXTERNAL": Listener("EXTERNAL", "broker.example", 19093)},
        "EXTERNAL",
    )


def test_names_are_case_insensitive() -> None:
    found = read(
        "listeners=internal://h:1,External://h:2",
        "listener.security.protocol.map=Internal:plaintext,external:PLAINTEXT",
        "advertised.listeners=EXTERNAL://e:3",
        "inter.broker.listener.name=internal",
    )
    assert ([each.name for each in found.bound], list(found.advertised), found.inter_broker) == (
        ["INTERNAL", "EXTERNAL"],
        ["EXTERNAL"],
        "INTERNAL",
    )


@pytest.mark.parametrize(("listeners", "expected"), [("A://:1,PLAINTEXT://:2", "PLAINTEXT"), ("B://:1,A://:2", "B")])
def test_other_brokers_use_plaintext_or_else_the_first_listener(listeners: str, expected: str) -> None:
    every = "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT,PLAINTEXT:PLAINTEXT"
    assert read(f"listeners={listeners}", every).inter_broker == expected


def test_port_0_may_appear_more_than_once() -> None:
    assert [each.port for each in read(*TWO, "listeners=INTERNAL://:0,EXTERNAL://:0").bound] == [0, 0]


def test_the_map_of_kafkas_own_file_is_taken() -> None:
    """Protocols that this version lacks may be in the map, as long as no listener uses them."""
    every = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
    assert read(f"listener.security.protocol.map={every}", "listeners=PLAINTEXT://:9092").bound[0].name == "PLAINTEXT"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("listeners=INTERNAL://:1,INTERNAL://:2", "INTERNAL://:1 and INTERNAL://:2 have the same name; give each listener its own"),
        ("listeners=INTERNAL://a:1,EXTERNAL://b:1", "INTERNAL://a:1 and EXTERNAL://b:1 have the same port; give each listener its own"),
        (
            "listeners=INTERNAL://:1,OTHER://:2",
            "OTHER://:2: listener.security.protocol.map does not have OTHER; add OTHER:PLAINTEXT",
        ),
        (
            "advertised.listeners=OTHER://h:1",
            "there is no listener OTHER, listeners has INTERNAL, EXTERNAL",
        ),
        (
            "advertised.listeners=EXTERNAL://a:1,EXTERNAL://b:1",
            "EXTERNAL://a:1 and EXTERNAL://b:1 have the same name; give each listener its own",
        ),
        (
            "advertised.listeners=EXTERNAL://0.0.0.0:1",
            "EXTERNAL://0.0.0.0:1: clients cannot connect to '0.0.0.0'; advertise a name or address that they reach",
        ),
        (
            "advertised.listeners=EXTERNAL://[::]:1",
            "EXTERNAL://[::]:1: clients cannot connect to '::'; advertise a name or address that they reach",
        ),
        (
            "advertised.listeners=EXTERNAL://:1",
            "EXTERNAL://:1: clients cannot connect to an address without a host; advertise a name or address that they reach",
        ),
        ("inter.broker.listener.name=OTHER", "there is no listener OTHER, listeners has INTERNAL, EXTERNAL"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_where_they_stand(setting: str, message: str) -> None:
    name = setting.partition("=")[0]
    with pytest.raises(InvalidConfigError) as refused:
        read_static(settings=[*TWO, setting])
    assert (refused.value.name, refused.value.message) == (name, f"--set {setting}: {name}: {message}")


@pytest.mark.parametrize("settings", [("listeners=SSL://:9092",), ("listeners=A://:9092", "listener.security.protocol.map=A:SSL")])
def test_a_listener_that_should_be_closed_is_not_opened(settings: tuple[str, ...]) -> None:
    with pytest.raises(InvalidConfigError, match=r"the listener's security protocol is SSL, this version has PLAINTEXT only$"):
        read_static(settings=settings)


def test_a_default_that_another_setting_contradicts_is_named_without_a_place() -> None:
    with pytest.raises(InvalidConfigError) as refused:
        read_static(settings=["listener.security.protocol.map=A:PLAINTEXT"])
    assert refused.value.message.startswith("listeners: PLAINTEXT://localhost:9092: listener.security.protocol.map does not have PLAINTEXT")


@pytest.mark.parametrize("text", ["", "A", "A:", ":PLAINTEXT", "A:NONE", "A:PLAINTEXT,", "A:SSL,a:PLAINTEXT"])
def test_a_map_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"is not allowed, must be string of NAME:PROTOCOL$"):
        read_static(settings=[f"listener.security.protocol.map={text}"])


@pytest.mark.parametrize("text", ["", "://h:1", "A B://h:1", "A:B://h:1", "A://h"])
def test_listeners_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"is not allowed, must be list of NAME://HOST:PORT$"):
        read_static(settings=[f"listeners={text}"])
