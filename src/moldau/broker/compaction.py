"""The ``log.cleaner.*`` configurations as the cleaner takes them. They hold from the next pass on."""

from moldau.log.cleaning.planning import CleanerSettings
from moldau.model.config.store import BrokerConfig


def cleaner_settings(config: BrokerConfig) -> CleanerSettings:
    """As they are now."""
    return CleanerSettings(
        threads=config.int("log.cleaner.threads"),
        map_bytes=config.int("log.cleaner.dedupe.buffer.size"),
        map_load_factor=config.double("log.cleaner.io.buffer.load.factor"),
        io_bytes=config.int("log.cleaner.io.buffer.size"),
        bytes_per_second=config.double("log.cleaner.io.max.bytes.per.second"),
        decompressed_bytes_max=config.int("max.decompressed.bytes"),
    )
