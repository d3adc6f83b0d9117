"""`moldau registry` and the registry of `moldau serve --registry` have the same bounds by default."""

import pytest

from moldau.cli.registry import registry
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig
from moldau.registry.limits import HttpLimits
from moldau.registry.state import RegistryState


@pytest.mark.parametrize(
    ("setting", "option", "alone"),
    [
        ("registry.max.connections", "max_connections", HttpLimits().connections_max),
        ("registry.memory.max.bytes", "max_memory", RegistryState().memory_bytes_max),
    ],
)
def test_the_default_of_the_option_is_that_of_the_setting(setting: str, option: str, alone: int) -> None:
    shown = next(each for each in registry.params if each.name == option).default
    assert shown == BrokerConfig(read_static()).int(setting) == alone
