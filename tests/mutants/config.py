"""Mutants of the config: each breaks one rule of the contract's sections 5, 6 and 8."""

from __future__ import annotations

from mutants.mutant import Mutant

CHANGES = "pix_shm/_config/changes.py"
DOCUMENT = "pix_shm/_config/document.py"
EDITS = "pix_shm/_config/edits.py"
LOCK = "pix_shm/_config/lock.py"
NODE_LOCK = "pix_shm/_config/nodelock.py"
OWNERS = "pix_shm/_config/owners.py"
RUNTIMES = "pix_shm/_config/runtimes.py"
STORAGE = "pix_shm/_config/storage.py"
TEMPORARIES = "pix_shm/_config/temporaries.py"
VIEW = "pix_shm/_config/view.py"

NODE_LOCK_TESTS = "tests/config/test_node_lock.py"

WRITING = [
    Mutant(
        "the file is read inside the lock",
        RUNTIMES,
        "                base = self._refresh(file)\n",
        "                base = self._view\n",
        "tests/config/test_field_cases_a.py -k a02",
    ),
    Mutant(
        "one process changes the file at a time",
        LOCK,
        "fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "fcntl.flock(self.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)",
        "tests/config/test_lock.py",
    ),
    Mutant(
        "the file is flushed",
        STORAGE,
        "        os.fchmod(descriptor, mode)\n        os.fsync(descriptor)\n",
        "        os.fchmod(descriptor, mode)\n",
        "tests/config/test_faults.py",
    ),
    Mutant(
        "the directory is flushed",
        STORAGE,
        """            raise
        try:
            os.fsync(self._directory)
        except OSError as error:
            self.unflushed = error
""",
        """            raise
""",
        "tests/config/test_faults.py",
    ),
    Mutant(
        "a failed flush of the directory comes after the rename",
        STORAGE,
        "        except OSError as error:\n            self.unflushed = error\n",
        "        except OSError as error:\n            raise OSError from error\n",
        "tests/config/test_faults.py",
    ),
    Mutant(
        "before the rename the Node lock still names us",
        STORAGE,
        "            for lock in self._node_locks:\n                lock.check()\n",
        "",
        "tests/config/test_node_lock.py",
    ),
    Mutant(
        "the temporary file is never wider than the target",
        STORAGE,
        "            mode & 0o600,\n",
        "            0o644,\n",
        "tests/config/test_field_cases_a.py tests/config/test_storage.py",
    ),
    Mutant(
        "an existing file keeps its mode",
        STORAGE,
        "        return stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid)\n",
        "        return 0o600, (status.st_uid, status.st_gid)\n",
        "tests/config/test_field_cases_a.py tests/config/test_storage.py",
    ),
    Mutant(
        "a failed write leaves no temporary file",
        STORAGE,
        "        except BaseException as error:\n            self._unlink(temporary)\n",
        "        except BaseException as error:\n",
        "tests/config/test_storage.py tests/config/test_faults.py",
    ),
    Mutant(
        "a link stays a link",
        STORAGE,
        "        except OSError:\n            return os.path.join(directory, name)\n    raise",
        "        finally:\n            return os.path.join(directory, name)\n    raise",
        "tests/config/test_storage.py",
    ),
    Mutant(
        "what cannot be parsed is never overwritten",
        VIEW,
        "        if problem is not None or self.document.root is None:\n",
        "        if False:\n",
        "tests/config/test_field_cases_a.py tests/config/test_updates.py",
    ),
    Mutant(
        "a newer version is never written",
        VIEW,
        "        if self.document.unsupported_version:\n            raise Unsup",
        "        if False:\n            raise Unsup",
        "tests/config/test_updates.py",
    ),
    Mutant(
        "duplicate keys are no document to write back",
        DOCUMENT,
        "        duplicates = duplicates or len(found) != len(items)\n",
        "",
        "tests/config/test_document.py",
    ),
    Mutant(
        "numbers keep their value",
        DOCUMENT,
        "        if -(2**63) <= value < 2**64:\n            return value\n",
        "        return value\n",
        "tests/config/test_document.py",
    ),
    Mutant(
        "an explicit default stays explicit",
        EDITS,
        " or field.name in explicit:",
        ":",
        "tests/config/test_updates.py",
    ),
    Mutant(
        "a raising listener stops nobody",
        CHANGES,
        "        except Exception as error:\n            logger()",
        "        except ZeroDivisionError as error:\n            logger()",
        "tests/config/test_listeners.py",
    ),
    Mutant(
        "readers load the revision before the file",
        RUNTIMES,
        """                seen = self._segment.revision()
                view = self._source.read(self._view, file, force)
""",
        """                view = self._source.read(self._view, file, force)
                seen = self._segment.revision()
""",
        "tests/config/test_updates.py",
    ),
    Mutant(
        "others' changes are noticed by the revision",
        RUNTIMES,
        """        if self._segment.words[REVISION] != self._seen or monotonic() >= self._due:
            self._refresh()
        value""",
        """        if monotonic() >= self._due:
            self._refresh()
        value""",
        "tests/config/test_processes.py",
    ),
    Mutant(
        "what is beside a link is swept, too",
        STORAGE,
        "        for directory in (self._directory, *self._directories):\n",
        "        for directory in (self._directory,):\n",
        "tests/config/test_kills.py -k left",
    ),
    Mutant(
        "no file is made that nobody reads",
        STORAGE,
        "            if len(data) > LARGEST:\n",
        "            if False:\n",
        "tests/config/test_storage.py -k too_large",
    ),
    Mutant(
        "a failed close is no failed write",
        STORAGE,
        "                with suppress(OSError):  # what the file holds has been flushed\n",
        "                if True:\n",
        "tests/config/test_storage.py -k close",
    ),
    Mutant(
        "a caller without a stack finds no fault with the file",
        DOCUMENT,
        "    except RecursionError:\n        # The caller",
        "    except ZeroDivisionError:\n        # The caller",
        "tests/config/test_document.py -k stack",
    ),
    Mutant(
        "comments are said to be comments",
        DOCUMENT,
        "    if text.startswith(_COMMENTS, at):\n",
        "    if False:\n",
        "tests/config/test_field_cases_a.py -k a07",
    ),
    Mutant(
        "what is new comes last, and the rest stays in order",
        EDITS,
        "        return {**held, key: child}\n",
        "        return {key: child, **held}\n",
        "tests/config/test_updates.py -k only_what",
    ),
    Mutant(
        "behind a map's name everything is the key",
        EDITS,
        "            return (*path, rest), None\n",
        "            return (*path, rest.partition('.')[0]), None\n",
        "tests/config/test_updates.py -k forms",
    ),
    Mutant(
        "a forked child gives no lock back",
        LOCK,
        """        if self.process != os.getpid():
            return
        with _mutex:
            if self.descriptor not in _open:
                return
""",
        "        with _mutex:\n",
        "tests/config/test_lock.py -k a23",
    ),
]

LOCKING = [
    Mutant(
        "the Node lock is taken beside the link as well",
        STORAGE,
        "            if os.path.islink(path):\n",
        "            if False:\n",
        f"{NODE_LOCK_TESTS} -k beside_the_link",
    ),
    Mutant(
        "the Node lock is taken beside the target",
        STORAGE,
        "            self._take(NodeLock(self.target, self._directory, guard))\n",
        "            pass\n",
        f"{NODE_LOCK_TESTS} -k beside_the_link",
    ),
    Mutant(
        "where links cannot be written to, nobody has to lock beside them",
        STORAGE,
        "            if error.errno not in _READ_ONLY:\n                raise\n",
        "            raise\n",
        "tests/config/test_faults.py -k read_only_directory",
    ),
    Mutant(
        "a lock that names another is not ours",
        NODE_LOCK,
        "        if found is None or found.text != self._text:\n",
        "        if found is None:\n",
        f"{NODE_LOCK_TESTS} -k does_not_name_us",
    ),
    Mutant(
        "only our own lock is removed",
        NODE_LOCK,
        "            if found is not None and found.text == self._text:\n",
        "            if found is not None:\n",
        f"{NODE_LOCK_TESTS} -k does_not_name_us",
    ),
    Mutant(
        "a lock that was taken away by mistake is put back",
        NODE_LOCK,
        "            if self._look(aside) != found:\n",
        "            if False:\n",
        f"{NODE_LOCK_TESTS} -k put_back",
    ),
    Mutant(
        "a lock of an owner that is gone is left alone for 30 seconds",
        NODE_LOCK,
        "STALE = 30.0\n",
        "STALE = 28.0\n",
        f"{NODE_LOCK_TESTS} -k goes_stale",
    ),
    Mutant(
        "an unfilled lock is left alone for a second",
        NODE_LOCK,
        "UNFILLED = 1.0\n",
        "UNFILLED = 0.1\n",
        f"{NODE_LOCK_TESTS} -k filled_late",
    ),
    Mutant(
        "one look at an unfilled lock is none",
        NODE_LOCK,
        "or (watched > 0 and age >= patience)",
        "or age >= patience",
        f"{NODE_LOCK_TESTS} -k old_unfilled",
    ),
    Mutant(
        "a process that started after the lock was made is not its owner",
        NODE_LOCK,
        "    if started is not None and started > record.at + _SETTLED:\n",
        "    if False:\n",
        f"{NODE_LOCK_TESTS} -k used_again",
    ),
    Mutant(
        "what was made under the lock that we have is left over",
        NODE_LOCK,
        '        if self._guard is not None and record.marks.get("guard") == self._guard:\n',
        "        if False:\n",
        f"{NODE_LOCK_TESTS} -k made_under",
    ),
    Mutant(
        "where there is no flock none was had in common",
        NODE_LOCK,
        "        if self._guard is not None and record",
        "        if record",
        f"{NODE_LOCK_TESTS} -k no_flock",
    ),
    Mutant(
        "another thread's lock is not left over",
        NODE_LOCK,
        '        return record.marks.get("id") in _held\n',
        "        return False\n",
        f"{NODE_LOCK_TESTS} -k another_threads",
    ),
    Mutant(
        "a lock that names our process is not ours by that",
        NODE_LOCK,
        "        if record.process != os.getpid():\n            return False\n",
        "        return False\n",
        f"{NODE_LOCK_TESTS} -k goes_stale",
    ),
    Mutant(
        "a zombie is gone",
        OWNERS,
        '    return state != "Z" and (',
        "    return state is not None and (",
        f"{NODE_LOCK_TESTS} -k nobody_waited_for",
    ),
    Mutant(
        "a forked child removes no lock of its parent's",
        NODE_LOCK,
        "        if not self._text or self._process != os.getpid():\n",
        "        if not self._text:\n",
        f"{NODE_LOCK_TESTS} -k forked_child",
    ),
    Mutant(
        "the lock is readable to us whatever the umask is",
        NODE_LOCK,
        "            os.fchmod(descriptor, 0o600)  # whatever",
        "            pass  # whatever",
        f"{NODE_LOCK_TESTS} -k names_us_while",
    ),
    Mutant(
        "a directory that cannot be locked is none that is locked",
        LOCK,
        "            if error.errno in _REFUSALS:\n",
        "            if False:\n",
        "tests/config/test_faults.py -k a32_a_file_system",
    ),
    Mutant(
        "a rename that is refused for a moment is tried again",
        STORAGE,
        "        for pause in (*_RENAME_PAUSES, 0.0):\n",
        "        for pause in (0.0,):\n",
        "tests/config/test_faults.py -k for_a_moment",
    ),
    Mutant(
        "what a living writer is filling is not swept",
        TEMPORARIES,
        "        if made_by and not is_alive(int(made_by[1]), int(made_by[2]) or None)\n",
        "        if made_by\n",
        "tests/config/test_storage.py -k a28_only",
    ),
    Mutant(
        "what dead writers left is swept",
        STORAGE,
        "            sweep(directory)\n",
        "            pass\n",
        "tests/config/test_storage.py -k a28_only",
    ),
]

MUTANTS = [*WRITING, *LOCKING]
