"""Configurations of the schema registry that `moldau serve --registry` runs beside the broker."""

from moldau.model.config.tables.rows import integer, items, table
from moldau.model.config.validators import at_least

OWN = "Of our own: in Kafka's world the registry is another program."

REGISTRY = table(
    [
        items(
            "registry.allowed.hosts",
            (),
            "Further names under which clients may reach the registry (the `Host` of requests); `*` is any. Addresses, names without a "
            "dot, the machine's and those of the listeners need not be here.",
            own=True,
            deviation=OWN,
        ),
        items(
            "registry.allowed.origins",
            (),
            "Origins whose pages may use the registry from a browser, `https://console.example.org`; `*` is any.",
            own=True,
            deviation=OWN,
        ),
        integer(
            "registry.max.connections",
            1_000,
            "Connections to the registry at once; a further one is answered 503 and closed.",
            allowed=at_least(1),
            own=True,
            deviation=OWN,
        ),
        integer(
            "registry.memory.max.bytes",
            50_331_648,
            "Memory of all schemas, configurations and modes of the registry. At the bound what would add to it is answered 42209; "
            "deletions are carried out.",
            allowed=at_least(1),
            own=True,
            deviation=OWN,
        ),
    ]
)
