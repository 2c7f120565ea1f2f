"""Mutants of the config: each breaks one rule of the contract's sections 5, 6 and 8."""

from __future__ import annotations

from mutants.mutant import Mutant

CHANGES = "pix_shm/_config/changes.py"
DOCUMENT = "pix_shm/_config/document.py"
EDITS = "pix_shm/_config/edits.py"
LOCK = "pix_shm/_config/lock.py"
RUNTIMES = "pix_shm/_config/runtimes.py"
STORAGE = "pix_shm/_config/storage.py"
VIEW = "pix_shm/_config/view.py"

MUTANTS = [
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
    Mutant(
        "an unfilled lock has its second",
        "pix_shm/_config/nodelock.py",
        "UNFILLED = 1.0\n",
        "UNFILLED = 0.1\n",
        "tests/config/test_node_lock.py -k a21",
    ),
]
