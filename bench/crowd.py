"""Workers forked from the benchmark's process, and commanded one by one.

Forked, because locks of ``multiprocessing`` can only be inherited.
"""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from bench.peers import FORK

PATIENCE = 60.0
"""Seconds after which a worker is taken for hanging."""


class Worker:
    """A forked process that answers calls of one function."""

    def __init__(self, prepare: Callable[..., Callable[..., Any]], *arguments: Any) -> None:
        self._here, there = FORK.Pipe()
        self.process = FORK.Process(target=_serve, args=(there, prepare, arguments), daemon=True)
        self.process.start()
        there.close()
        assert self.process.pid is not None
        self.pid = self.process.pid

    def call(self, *arguments: Any) -> None:
        """Have it call its function; :meth:`answer` returns the result."""
        self._here.send(arguments)

    def answer(self, seconds: float = PATIENCE) -> Any:
        """Return what the function returned.

        Raises:
            TimeoutError: it has not returned within so many seconds.
            RuntimeError: it raised, or the process died.
        """
        if not self._here.poll(seconds):
            raise TimeoutError(f"no answer from process {self.pid}")
        try:
            result, error = self._here.recv()
        except EOFError:
            raise RuntimeError(f"process {self.pid} died") from None
        if error is not None:
            raise RuntimeError(error)
        return result

    def ask(self, *arguments: Any, seconds: float = PATIENCE) -> Any:
        """Call the function, return the result."""
        self.call(*arguments)
        return self.answer(seconds)

    def kill(self) -> None:
        """End it as ``kill -9`` does, and wait for that."""
        self.process.kill()
        self.process.join()
        self._here.close()


class Crowd:
    """The workers of one benchmark."""

    def __init__(self) -> None:
        self._workers: list[Worker] = []

    def fork(self, prepare: Callable[..., Callable[..., Any]], *arguments: Any) -> Worker:
        """Fork a worker: ``prepare(*arguments)`` is called in it, and returns its function."""
        worker = Worker(prepare, *arguments)
        self._workers.append(worker)
        return worker

    def end(self) -> None:
        """End all workers."""
        while self._workers:
            self._workers.pop().kill()


def _serve(
    connection: Connection, prepare: Callable[..., Callable[..., Any]], arguments: tuple[Any, ...]
) -> None:
    """Answer calls until nobody is there to ask."""
    function = None
    try:
        while True:
            call = connection.recv()
            try:
                function = function or prepare(*arguments)
                connection.send((function(*call), None))
            except Exception as error:
                import traceback

                connection.send((None, "".join(traceback.format_exception(error))))
    except (EOFError, OSError, KeyboardInterrupt):
        pass
