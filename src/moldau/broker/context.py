"""What a handler knows of a request besides its body."""

from moldau.broker.api.request import Exchange
from moldau.broker.security.channel import Channel


class RequestContext:
    """Where a request comes from and how its answer is encoded."""

    __slots__ = ("api_key", "api_version", "channel", "client_id", "correlation_id", "exchange")

    def __init__(
        self, api_key: int, api_version: int, correlation_id: int, client_id: str | None, channel: Channel, exchange: Exchange
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.channel = channel
        self.exchange = exchange
