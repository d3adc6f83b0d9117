"""Configurations of the schema registry that `moldau serve --registry` runs beside the broker, and the defaults that ``moldau registry``
shares.
"""

from moldau.model.config.definition import integer, items, table
from moldau.model.config.validators import at_least

CONNECTIONS_MAX = 1_000
"""Connections at once."""
MEMORY_BYTES_MAX = 24 << 20
"""Of schemas, configurations and modes that are kept."""

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
            CONNECTIONS_MAX,
            "Connections to the registry at once; a further one is answered 503 and closed.",
            allowed=at_least(1),
            own=True,
            deviation=OWN,
        ),
        integer(
            "registry.memory.max.bytes",
            MEMORY_BYTES_MAX,
            "Memory of all schemas, configurations and modes of the registry. At the bound what would add to it is answered 42209; "
            "deletions are carried out. What others have written to the topic beyond it is left out when the topic is read; then "
            "registrations are answered 42209, and 50001 what may depend on them (what is not found, latest versions, compatibility), "
            "until the registry is started with a larger value.",
            allowed=at_least(1),
            own=True,
            deviation=OWN,
        ),
    ]
)
