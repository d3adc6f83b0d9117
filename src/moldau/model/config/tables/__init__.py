"""The definitions themselves, a module per subject; together those of a broker."""

from moldau.model.config.tables.coordinators import COORDINATORS
from moldau.model.config.tables.logs import LOGS
from moldau.model.config.tables.network import NETWORK
from moldau.model.config.tables.registry import REGISTRY
from moldau.model.config.tables.zookeeper import ZOOKEEPER

BROKER = {**NETWORK, **LOGS, **COORDINATORS, **REGISTRY, **ZOOKEEPER}
