"""A connection of a simulated client, as small as it can be: one request at a time, and the answer."""

import asyncio
from typing import Any

from moldau.model.errors import WorldError
from moldau.ports.network import ConnectError
from moldau.ports.transport import Receiver, Transport
from moldau.protocol.rpc import Rpc
from moldau.testing.simulation.clients.context import ClientContext

TIMEOUT_S = 10.0


class LostError(WorldError):
    """The connection has ended; whether the request was carried out is not known."""

    def __init__(self) -> None:
        super().__init__("connection lost", retriable=True)


class Caller:
    """A receiver that answers coroutines."""

    def __init__(self, transport: Transport, client_id: str) -> None:
        self.transport = transport
        self.rpc = Rpc(client_id, 1 << 24, 10)
        self._waiting: list[asyncio.Future[Any]] = []
        self._is_over = False

    def get_buffer(self, size_hint: int) -> memoryview:
        return self.rpc.get_buffer()

    def buffer_updated(self, count: int) -> None:
        was_open = self.rpc.is_open
        answered = self.rpc.buffer_updated(count)
        if answered is not None or self.rpc.is_open != was_open:
            future = self._waiting.pop(0)
            if not future.done():
                future.set_result(answered.response if answered is not None else None)

    def queue_drained(self) -> None:
        pass

    def connection_lost(self, error: Exception | None) -> None:
        self._is_over = True
        for future in self._waiting:
            if not future.done():
                future.set_exception(LostError())

    async def hello(self) -> None:
        await self._answer(self.rpc.hello())

    async def ask(self, request: Any, version: int | None = None) -> Any:
        _, data = self.rpc.send(request.API, request, version=version)
        return await self._answer(data)

    async def _answer(self, data: bytes) -> Any:
        if self._is_over:
            raise LostError
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self.transport.send([data])
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await future
        except TimeoutError:
            self.transport.abort()
            raise LostError from None


async def connect(context: ClientContext) -> Caller:
    """A connection to the first server. ConnectError, LostError."""
    future: asyncio.Future[Caller] = asyncio.get_running_loop().create_future()

    def accept(transport: Transport) -> Receiver:
        caller = Caller(transport, context.name)
        future.set_result(caller)
        return caller

    def failed(error: ConnectError) -> None:
        future.set_exception(error)

    context.network.connect(*context.servers[0], accept, failed)
    caller = await future
    await caller.hello()
    return caller
