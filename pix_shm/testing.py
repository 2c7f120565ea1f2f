"""For the tests of programs that use ``pix_shm``: a world of their own, without a trace."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import posix_ipc

from pix_shm import _config, agent, paths, segment, states


@contextmanager
def create_isolated_runtime() -> Iterator[_config.Runtime]:
    """Make a temporary agent directory, with a segment of its own, the one of this process's
    module-level functions; its :class:`~pix_shm.Runtime` is the context's value.

    ``$PI_CODING_AGENT_DIR`` names it as well, so that processes started within the context join.
    In the end everything is as it was: the runtime is shut down, agents of that directory are
    closed, and the directory, its segment and its semaphore are gone. Nothing of it is to be used
    afterwards, and processes started within have to end before. Contexts nest, and end in the
    reverse order; the module's state is the process's, so that threads must not enter different
    ones at a time. A forked child that leaves the context removes nothing.
    """
    process = os.getpid()
    directory = os.path.realpath(tempfile.mkdtemp(prefix="pix-shm-"))
    try:
        with _as_default(directory) as runtime:
            yield runtime
    finally:
        if os.getpid() == process:
            _remove(directory)


@contextmanager
def _as_default(directory: str) -> Iterator[_config.Runtime]:
    before = paths._default, agent._machine, _config._default, os.environ.get(paths.VARIABLE)
    listeners, states._registered = states._registered, {}
    runtime = _config.Runtime(directory)
    try:
        os.environ[paths.VARIABLE] = paths._default = directory
        agent._machine = None
        _config._runtimes[directory] = _config._default = runtime
        yield runtime
    finally:
        runtime.shutdown()  # whoever still has it must not make the directory anew
        _close_agents(directory)
        states._registered = listeners
        paths._default, agent._machine, _config._default, variable = before
        if variable is None:
            os.environ.pop(paths.VARIABLE, None)
        else:
            os.environ[paths.VARIABLE] = variable
        for table in (_config._runtimes, agent._readers, segment._segments):
            table.pop(directory, None)


def _close_agents(directory: str) -> None:
    for each in list(agent.everyone()):
        if each.directory == directory:
            each._attached = 1  # however often it was attached, or not at all
            each.close()


def _remove(directory: str) -> None:
    name = segment.segment_name(directory, os.geteuid())
    for unlink in (posix_ipc.unlink_shared_memory, posix_ipc.unlink_semaphore):
        with suppress(posix_ipc.ExistentialError):
            unlink(name)
    with suppress(FileNotFoundError):
        # A test may have taken away rights that removing needs.
        os.chmod(directory, 0o700)
        for path, directories, _ in os.walk(directory):
            for each in directories:
                below = os.path.join(path, each)
                if not os.path.islink(below):
                    os.chmod(below, 0o700)
        shutil.rmtree(directory)
