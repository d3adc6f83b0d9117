"""Has questions about schemas answered by worker processes, so that decisions find the answers (`schemas/answers.py`).

One loop's tasks use it. A question is under way once, for all callers; how many may be is bounded, and so are time and memory of each.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TypeVar

from moldau.adapters.worker_calls import WorkerCalls
from moldau.ports.background import WorkerError, WorkerLimitError
from moldau.registry.errors import RestError, timed_out
from moldau.registry.limits import WorkLimits
from moldau.registry.schemas.answers import WARM_UP, WORK, Answer, AnswerCache, HeldAnswers, SchemaQuestion, UnansweredError, decode_answer

T = TypeVar("T")

_QUESTIONS_MAX = 2_000
"""Of one request: the versions of a subject that it is compared with, and what they refer to."""


class NotReadableError(RestError):
    """A schema cannot be read within the limits (42201), or no process was free in time (50002)."""


class SchemaWorkers:
    """Has the questions answered that are missing in `cache`, and keeps the answers there."""

    def __init__(self, cache: AnswerCache, limits: WorkLimits) -> None:
        self._cache = cache
        self._limits = limits
        self._calls = WorkerCalls(
            processes_max=limits.processes, seconds=limits.task_s, memory_bytes=limits.memory_bytes, niceness=limits.niceness
        )
        self._threads = ThreadPoolExecutor(limits.processes, "moldau-registry-schemas")
        self._under_way: dict[SchemaQuestion, asyncio.Future[Answer]] = {}

    def warm_up(self) -> None:
        """Start a process, in the background, so that the first schema need not wait for it."""
        self._threads.submit(self._calls.call, WORK, WARM_UP, wait_s=self._limits.wait_s)

    def processes(self) -> list[int]:
        """Ids of the worker processes."""
        return self._calls.processes()

    def close(self) -> None:
        """End the processes; what was asked fails."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._calls.close()

    def hold(self) -> HeldAnswers:
        """For the answers that one request needs; entered for as long as it is under way."""
        return HeldAnswers(self._cache)

    async def settle(self, executor: Executor, decide: Callable[[], T], held: HeldAnswers) -> T:
        """What `decide` gives, in a thread, when all that it has to know is known. NotReadableError, and what it raises."""
        loop = asyncio.get_running_loop()
        for _ in range(_QUESTIONS_MAX):
            try:
                return await loop.run_in_executor(executor, decide)
            except UnansweredError as missing:
                question = missing.question
            if not held.is_new(question):
                raise _busy(f"schemas that requests under way need take more than {self._cache.held_bytes_max:,} bytes; try again")
            if not held.keep(question, await self._answer(question)):
                most = self._cache.request_bytes_max
                raise NotReadableError(422, 42201, f"schemas and differences that this request needs take more than {most:,} bytes")
        raise NotReadableError(422, 42201, f"this request needs more than {_QUESTIONS_MAX:,} schemas to be parsed or compared")

    async def _answer(self, question: SchemaQuestion) -> Answer:
        future = self._under_way.get(question)
        if future is None:
            if len(self._under_way) >= self._limits.waiting_max:
                raise _busy(f"{self._limits.waiting_max} schemas are already waiting to be read")
            future = asyncio.get_running_loop().run_in_executor(self._threads, self._ask, question)
            self._under_way[question] = future
            future.add_done_callback(lambda _: self._under_way.pop(question, None))
        try:
            answer = await asyncio.shield(future)
        except WorkerLimitError as error:
            what = "reading it" if question.older is None else "comparing it with an earlier version"
            raise NotReadableError(422, 42201, f"Invalid schema of type {question.schema.language}, details: {what}: {error}") from error
        except WorkerError as error:
            raise _busy(str(error)) from error
        self._cache.remember(question, answer)
        return answer

    def _ask(self, question: SchemaQuestion) -> Answer:
        return decode_answer(self._calls.call(WORK, question.encode(), wait_s=self._limits.wait_s))


def _busy(reason: str) -> NotReadableError:
    error = timed_out(f"The schema was not read: {reason}")
    return NotReadableError(error.status, error.code, error.message)
