"""Mutants of waiting and delivery: each breaks one rule of the contract's sections 3, 4 and 6."""

from __future__ import annotations

from mutants.mutant import Mutant

AGENT = "pix_shm/agent.py"
AIO = "pix_shm/aio.py"
CHANGES = "csrc/changes.c"
LOCK = "csrc/lock.c"
READER = "pix_shm/reader.py"
RUNTIMES = "pix_shm/_config/runtimes.py"
STATES = "pix_shm/states.py"
WAITING = "pix_shm/waiting.py"
WATCHING = "pix_shm/watching.py"

UNITS = "tests/core/test_units.py -k changes-"

MUTANTS = [
    Mutant(
        "a change wakes sleepers",
        CHANGES,
        "        sys_futex_wake_all(&map->changes);\n}\n\nvoid pix_wait",
        "        (void)map;\n}\n\nvoid pix_wait",
        UNITS,
    ),
    Mutant(
        "whoever lets the lock go tells of the change",
        LOCK,
        "    changes_tell(map);\n",
        "",
        UNITS,
    ),
    Mutant(
        "a removed segment wakes sleepers",
        "csrc/segment.c",
        "        changes_tell(segment->map);\n",
        "",
        UNITS,
    ),
    Mutant(
        "a revision made without the lock wakes sleepers",
        "csrc/revision.c",
        "        changes_tell(segment->map);\n",
        "",
        UNITS,
    ),
    Mutant(
        "what is waited for is looked at after the count of changes",
        WAITING,
        """        moment = segment.moment()  # first: later changes end the sleep
        look_around(segment.directory)
        token = segment.revision(), reader.version()
""",
        """        look_around(segment.directory)
        token = segment.revision(), reader.version()
        moment = segment.moment()
""",
        "tests/changes/test_wait.py -k just_before",
    ),
    Mutant(
        "whoever waits looks around",
        WAITING,
        "        look_around(segment.directory)\n",
        "",
        "tests/changes/test_wait.py -k hand_edit",
    ),
    Mutant(
        "a token stands for a moment",
        READER,
        "        return self._believed if self._haunted else self.told[0]\n",
        "        return state\n",
        "tests/changes/test_wait.py -k between_two_calls",
    ),
    Mutant(
        "leases move to the new segment where somebody watches",
        AGENT,
        "            if again or (not agent._failed and agent._is_elsewhere()):\n",
        "            if again:\n",
        "tests/changes/test_watch.py -k leases_move",
    ),
    Mutant(
        "own changes of state are told before the call returns",
        AGENT,
        "        if _tell_change is not None and not finalizing:\n",
        "        if False:\n",
        "tests/changes/test_state_changes.py -k own_changes",
    ),
    Mutant(
        "a listener of the state that raises stops nobody",
        STATES,
        "        except Exception as error:\n",
        "        except ZeroDivisionError as error:\n",
        "tests/changes/test_state_changes.py -k raises",
    ),
    Mutant(
        "the same state is no change",
        STATES,
        "        if known == state:\n",
        "        if False:\n",
        "tests/changes/test_state_changes.py -k as_it_was",
    ),
    Mutant(
        "the thread looks after the count of changes",
        WATCHING,
        """            moment = self._segment.moment()  # first: later changes end the sleep
            try:
                self._wake()
            except BaseException as error:
                logger().error("a watcher failed", exc_info=error)
""",
        """            try:
                self._wake()
            except BaseException as error:
                logger().error("a watcher failed", exc_info=error)
            __import__("time").sleep(0.01)
            moment = self._segment.moment()
""",
        "tests/changes/test_watch.py -k at_once",
    ),
    Mutant(
        "what a listener raises does not end the thread",
        WATCHING,
        "            except BaseException as error:\n",
        "            except Exception as error:\n",
        "tests/changes/test_watch.py -k does_not_end",
    ),
    Mutant(
        "the last to close ends the thread",
        WATCHING,
        "            self._watches.discard(watch)\n",
        "            self._watches.clear()\n",
        "tests/changes/test_watch.py -k share",
    ),
    Mutant(
        "a forked child has no thread",
        RUNTIMES,
        "        self._watching.reset_after_fork()\n",
        "",
        "tests/changes/test_watch.py -k forked",
    ),
    Mutant(
        "shutdown ends the thread",
        RUNTIMES,
        "        self._watching.clear()\n",
        "",
        "tests/changes/test_watch.py -k shutdown",
    ),
    Mutant(
        "watching one directory tells nobody of another",
        RUNTIMES,
        "        if self.directory == paths._default:\n            polling.deliver(self.",
        "        if True:\n            polling.deliver(paths._default or self.",
        "tests/changes/test_watch.py -k another_directory",
    ),
    Mutant(
        "an iteration that is dropped ends",
        AIO,
        '        if hasattr(self, "_watch"):\n            self._end()\n',
        "        pass\n",
        "tests/changes/test_aio.py -k dropped",
    ),
    Mutant(
        "what a slow loop missed is one change",
        AIO,
        "        merged = merge(pending.pop(), change) if pending else change\n",
        "        merged = change if not pending or pending.pop() else None\n",
        "tests/changes/test_aio.py -k slow_loop",
    ),
    Mutant(
        "the loop is woken from other threads",
        AIO,
        "        _call_soon(loop, keep, change)\n",
        "        keep(change)\n",
        "tests/changes/test_aio.py -k from_any_thread",
    ),
    Mutant(
        "updates run off the loop",
        AIO,
        """    return await asyncio.to_thread(
        _config.update_config, section, patch, source=source, timeout=timeout
    )
""",
        "    return _config.update_config(section, patch, source=source, timeout=timeout)\n",
        "tests/changes/test_aio.py -k off_the_loop",
    ),
]
