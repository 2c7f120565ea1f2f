"""Mutants of the migration: each breaks one of its rules in the contract's section 5."""

from __future__ import annotations

from mutants.mutant import Mutant

RUNTIMES = "pix_shm/_config/runtimes.py"
SIDECAR = "pix_shm/_config/sidecar.py"
STORAGE = "pix_shm/_config/storage.py"
MIGRATIONS = "pix_shm/_config/migrations.py"
VIEW = "pix_shm/_config/view.py"

TESTS = "tests/config/test_migration.py"

MUTANTS = [
    Mutant(
        "the canonical file is written first",
        RUNTIMES,
        """                content = file.replace(documents.serialize(edited))
                sidecar = self._archive(base)
""",
        """                sidecar = self._archive(base)
                content = file.replace(documents.serialize(edited))
""",
        f"{TESTS} -k kill_at",
    ),
    Mutant(
        "one revision, when file and sidecar are in place",
        RUNTIMES,
        """                sidecar = self._archive(base)
                revision = self._segment.publish_config(
                    identity(content.fingerprint, edited, sidecar)
                )
""",
        """                revision = self._segment.publish_config(
                    identity(content.fingerprint, edited, base.sidecar)
                )
                sidecar = self._archive(base)
""",
        f"{TESTS} -k canonical",
    ),
    Mutant(
        "the file as it was is kept",
        RUNTIMES,
        "                file.keep(base.data)\n",
        "                pass\n",
        f"{TESTS} -k kill_at",
    ),
    Mutant(
        "the kept copy is whole",
        STORAGE,
        """        temporary = temporary_name()
        try:
            if self._exists(name):""",
        """        temporary = name
        try:
            if self._exists(name):""",
        f"{TESTS} -k kill_at",
    ),
    Mutant(
        "the kept copy is made exclusively",
        STORAGE,
        "            self._name_new(temporary, name)\n",
        "            os.rename(temporary, name, src_dir_fd=self._directory,"
        " dst_dir_fd=self._directory)\n",
        f"{TESTS} -k copy",
    ),
    Mutant(
        "the sidecar shows through",
        VIEW,
        "resolve_root(apply(root, sidecar.imports(root)))",
        "resolve_root(root)",
        f"{TESTS} -k reading",
    ),
    Mutant(
        "an edit of the sidecar is noticed",
        VIEW,
        "    if root is None or not sidecar.imports(root):\n",
        "    if True:\n",
        f"{TESTS} -k one_revision",
    ),
    Mutant(
        "a sidecar that adds nothing is no revision",
        VIEW,
        "    if root is None or not sidecar.imports(root):\n",
        "    if root is None:\n",
        f"{TESTS} -k adds_nothing",
    ),
    Mutant(
        "a value of the file wins",
        SIDECAR,
        "            if not _has(root, name)\n        )\n\n    def discarded",
        "        )\n\n    def discarded",
        f"{TESTS} -k a40_values",
    ),
    Mutant(
        "a malformed sidecar is left alone",
        SIDECAR,
        "return self.fingerprint != NO_FILE and self.problem is None",
        "return self.fingerprint != NO_FILE",
        f"{TESTS} -k malformed",
    ),
    Mutant(
        "an archive is never replaced",
        SIDECAR,
        "    while os.path.lexists(target):\n",
        "    while False:\n",
        f"{TESTS} -k a40_an_archive",
    ),
    Mutant(
        "a sidecar is not archived unread",
        SIDECAR,
        "    if storage.fingerprint(path) != migrated.fingerprint:\n        return\n",
        "",
        f"{TESTS} -k unread",
    ),
    Mutant(
        "two at once migrate once",
        RUNTIMES,
        "            elif base.outdated:\n",
        "            elif True:\n",
        f"{TESTS} -k eight",
    ),
    Mutant(
        "the first write migrates",
        RUNTIMES,
        "            root = migrated(base.writable(self.path))\n",
        "            root = base.writable(self.path)\n",
        f"{TESTS} -k first_write",
    ),
    Mutant(
        "legacy keys go",
        MIGRATIONS,
        '    ("optimizer", "toon"),\n',
        "",
        f"{TESTS} -k dropped",
    ),
    Mutant(
        "a start does not fail over a migration",
        RUNTIMES,
        "        except (ConfigLockError, ConfigWriteError) as error:\n            if view",
        "        except ZeroDivisionError as error:\n            if view",
        f"{TESTS} -k busy",
    ),
]
