"""A sequence of steps that wait for the coordination tree, written as a generator, and run on the tree's thread.

    def remove(tree, path):
        (found,) = yield from ask(tree, [GetData(path)])
        if isinstance(found, Data):
            yield from ask(tree, [Delete(path)])

A step is a function that takes `resume`, and calls it once with the result of its ``yield``: at once, or later.
"""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

from moldau.model.errors import CoordinationError, MoldauError
from moldau.ports.coordination import Coordination, NodeError, Outcome, Request

Resume = Callable[[Any], object]
Step = Callable[[Resume], object]
Procedure = Generator[Step, Any, None]

REQUESTS_AT_A_TIME = 1000


def ask(tree: Coordination, requests: Sequence[Request]) -> Generator[Step, Any, list[Any]]:
    """Their outcomes, in order; a NodeError is one. Any other CoordinationError is raised, after all were answered."""
    outcomes: list[Outcome] = []
    for first in range(0, len(requests), REQUESTS_AT_A_TIME):
        outcomes += yield partial(_submit, tree, requests[first : first + REQUESTS_AT_A_TIME])
    for each in outcomes:
        if isinstance(each, CoordinationError) and not isinstance(each, NodeError):
            raise each
    return outcomes


def _submit(tree: Coordination, requests: Sequence[Request], resume: Resume) -> None:
    outcomes: list[Outcome] = []

    def answered(outcome: Outcome) -> None:
        outcomes.append(outcome)
        if len(outcomes) == len(requests):
            resume(outcomes)

    for request in requests:
        tree.submit(request, answered)


class ProcedureRun:
    """Runs a procedure from `start` on; `ended` is called when it has returned, or with the MoldauError that it raised."""

    def __init__(self, procedure: Procedure, ended: Callable[[MoldauError | None], object]) -> None:
        self._procedure = procedure
        self._ended = ended
        self._is_over = False
        self._awaited: list[Any] | None = None
        """Where the step that has no result yet would have put it."""

    def start(self) -> None:
        """Run its first steps."""
        self._continue(None)

    def cancel(self) -> None:
        """Run no further step, and do not call `ended`."""
        self._is_over = True

    def _continue(self, result: Any) -> None:
        """Run steps until one has no result yet. Not recursive, however many have theirs at once."""
        while not self._is_over:
            try:
                step = self._procedure.send(result)
            except StopIteration:
                self._end(None)
                return
            except MoldauError as error:
                self._end(error)
                return
            results: list[Any] = []
            step(partial(self._resume, results))
            if not results:
                self._awaited = results
                return
            (result,) = results

    def _resume(self, results: list[Any], result: Any) -> None:
        if results is self._awaited:
            self._awaited = None
            self._continue(result)
        else:
            results.append(result)

    def _end(self, error: MoldauError | None) -> None:
        self._is_over = True
        self._ended(error)
