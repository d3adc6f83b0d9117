"""A way to a broker on which a test answers some requests itself, or changes the broker's answers.

The broker advertises the address of the way, so that clients take it whatever they were given. One request of a connection after the
other, which is how brokers answer.
"""

import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Any

from moldau.protocol.codec import decode
from moldau.protocol.headers import decode_response_header
from moldau.protocol.messages import load
from support.scripted_broker import Request, reply, request_in
from support.threaded_server import ThreadedServer

Edit = Callable[[Any], None]
"""Changes an answer of the broker."""
Script = Callable[[Request], object]
"""What becomes of a request: None forwards it, an `Edit` forwards it and changes the answer, a message is the answer."""


class AnsweringProxy(ThreadedServer):
    """Listens from the beginning. `start` says where the broker is; until then connections wait."""

    def __init__(self) -> None:
        super().__init__()
        self.script: Script = lambda _: None
        self._broker = ("", 0)

    def start(self, broker: str) -> None:
        """Take connections, to this broker."""
        host, _, port = broker.rpartition(":")
        self._broker = host, int(port)
        self.listen()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            broker = socket.create_connection(self._broker)  # refused where the broker is away: then this connection ends too
            self._open.append(broker)
            with broker, client.makefile("rb") as requests, broker.makefile("rb") as answers:
                while frame := _frame(requests):
                    request = request_in(frame)
                    answer = self.script(request)
                    if answer is not None and not callable(answer):
                        client.sendall(reply(request, answer))
                        continue
                    broker.sendall(struct.pack(">i", len(frame)) + frame)
                    found = _frame(answers)
                    if not found:
                        return
                    if answer is None:
                        client.sendall(struct.pack(">i", len(found)) + found)
                    else:
                        client.sendall(reply(request, _edited(request, found, answer)))


def _frame(stream: Any) -> bytes:
    """The next one; empty at the end."""
    head = stream.read(4)
    if len(head) < 4:
        return b""
    frame: bytes = stream.read(struct.unpack(">i", head)[0])
    return frame


def _edited(request: Request, frame: bytes, edit: Edit) -> object:
    _, position = decode_response_header(frame, request.api_key, request.version)
    message = decode(load(request.api_key).response, request.version, frame, position)
    edit(message)
    return message
