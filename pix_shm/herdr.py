"""Tells herdr, a terminal multiplexer for agents, that an agent began to wait for its user.

The bridge is a leaf: its bus shows it what goes out on :data:`pix_shm.events.STATE`, and it runs
``herdr notification show TITLE --sound request`` when the agent enters ``blocked``. It stands in
the path of a prompt, so it never raises, holds no lock, waits for nobody but one short-lived shell
(a millisecond or two; half a second where that shell hangs), and touches no file but ``/bin/sh``: a
``PATH`` entry on a dead network mount is the shell's trouble, in the background.

Why a shell: a child of ours stays a zombie until somebody waits for it, and there is no thread here
to do that. The shell starts herdr in the background, prints its process id and ends; herdr is then
an orphan that the system reaps. Where this process is itself the reaper of orphans (process 1 of a
container, a subreaper) an ended herdr stays a zombie until the next notification, four at most.

Whoever hangs is known by a pidfd, which no reused process id can deceive. Everything shared between
threads changes by single operations of ``list`` and ``dict``, never under a lock, so that neither a
signal handler nor a fork at the wrong moment can wedge a prompt.
"""

from __future__ import annotations

import os

from pix_shm.logs import logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    import subprocess
    from collections.abc import Callable, Mapping
    from typing import Any

    from pix_shm.events import EventBus

DEFAULT_TITLE = "Pi needs your attention"
"""Shown where a block has no message, or one without visible text."""

TITLE_LENGTH = 80
"""Characters of a title that herdr keeps (``sanitized_notification_text`` in ``app/api.rs``)."""

LIMIT = 4
"""Notifiers of one process that may run at once."""

PATIENCE = 5.0
"""Seconds after which a notifier counts as hanging and, at the limit, has to make room."""

SHELL_PATIENCE = 0.25
"""Seconds for which the caller waits for the shell's line, then for its end; both take about one
thousandth."""


def bind_herdr_notify(events: EventBus) -> Callable[[], None]:
    """Tell herdr whenever the agent on ``events`` enters ``blocked``; returns ``unbind()``.

    One notification for each entry, however often the bus is bound and however many blocks are
    nested; the state seen so far outlives unbinding and binding again. Only the newest ``unbind``
    has an effect, and only once.

    ``HERDR_ENV`` must be exactly ``1`` (herdr sets it in its panes) and ``PIX_HERDR_NOTIFY`` must
    not be ``0`` at the moment of the transition; otherwise nothing is started. The ``herdr`` that
    runs is the first regular executable file of that name in the absolute entries of ``PATH``.

    Nothing that goes wrong here is raised; it is logged to ``pix_shm``, the first time as a
    warning. herdr itself shows at most one notification a second and none while another is up:
    whether it showed ours is not known, and the agent's state does not depend on it.
    """
    bridge = events.herdr
    if not isinstance(bridge, _Bridge):
        bridge = events.herdr = _Bridge()
    bound = bridge
    binding = bound.binding = object()

    def unbind() -> None:
        if bound.binding is binding:
            bound.binding = None

    return unbind


class _Bridge:
    """What one bus has gone through, and whether herdr is to be told.

    It stays on its bus when it is unbound, for a block may begin or end meanwhile; it knows nothing
    of the bus, so that it keeps none alive.
    """

    __slots__ = ("binding", "entered")

    def __init__(self) -> None:
        self.binding: object | None = None
        # Who saw the entry into the present block, by process: after a fork the child has left
        # its parent's block. A dictionary because setdefault() lets exactly one thread be first.
        self.entered: dict[int, object] = {}

    def see(self, data: Mapping[str, Any]) -> None:
        """Take in one event; its sender is in the path of a prompt, so nothing is raised."""
        try:
            if data["state"] != "blocked":
                self.entered.clear()
                return
            entry = object()
            first = self.entered.setdefault(os.getpid(), entry) is entry
            if first and self.binding is not None and _wanted():
                _notify(data.get("message"))
        except Exception as error:
            _report(error)


def _wanted() -> bool:
    environment = os.environ
    return environment.get("HERDR_ENV") == "1" and environment.get("PIX_HERDR_NOTIFY") != "0"


# --- what herdr is given to show ------------------------------------------------------------------

_READ = 4096  # characters looked at: messages are unbounded, titles are not

# Terminal sequences go as a whole, else their letters would stay behind as text: CSI, then the
# string kinds (OSC, DCS, SOS, PM, APC) with their terminator. ECMA-48, 5.4 and 5.6.
_SEQUENCES = (
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|(?:\x1b[]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\\\|\x9c)"
)
_sequences: re.Pattern[str] | None = None

# Marks, embeddings, overrides and isolates of the bidirectional algorithm (UAX #9, 2): they make a
# line read otherwise than it is. Joiners stay, words and emoji are spelled with them.
_DIRECTION = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

_BLANK_LETTERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")  # letters and symbols without ink
_JOINER = "\u200d"

# herdr takes the first three for a question. The others are options that it picks out of its whole
# command line, title or not (``session.rs``, ``remote/attach.rs``), alone or with ``=VALUE``.
_QUESTIONS = frozenset(("help", "-h", "--help"))
_OPTIONS = ("--session", "--remote", "--handoff")


def _title(message: object) -> str:
    """Return ``message`` as one line that herdr shows: visible, at most 80 characters.

    White space becomes single blanks; terminal sequences, other control characters and direction
    controls go; a lone surrogate becomes U+FFFD. What herdr would not take for a title gets a
    leading blank, which its server trims.
    """
    global _sequences
    from unicodedata import category

    if _sequences is None:
        import re

        _sequences = re.compile(_SEQUENCES)
    text = _sequences.sub("", message[:_READ]) if isinstance(message, str) else ""
    # Through UTF-16, where two surrogates that belong together become their character. Not through
    # "utf-16-le": that codec is imported, which CPython 3.13.0 fails to do in a deleted directory.
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    kept = (c for c in text if c.isspace() or (category(c) != "Cc" and c not in _DIRECTION))
    text = _cut(" ".join("".join(kept).split()))
    if not any(_inked(c) for c in text):
        return DEFAULT_TITLE
    if text in _QUESTIONS or text.startswith(_OPTIONS):
        return f" {text}"[:TITLE_LENGTH]
    return text


def _inked(character: str) -> bool:
    """Whether a reader sees ``character`` by itself.

    Private use (icon fonts) and unassigned characters (newer than this Python) count as seen.
    """
    from unicodedata import category

    kind = category(character)
    return kind[0] not in "ZM" and kind not in ("Cc", "Cf") and character not in _BLANK_LETTERS


def _cut(text: str) -> str:
    """Cut ``text`` to the length of a title, before and not within a combining sequence."""
    if len(text) <= TITLE_LENGTH:
        return text
    end = TITLE_LENGTH
    while end and _continues(text[end - 1], text[end]):
        end -= 1
    return text[: end or TITLE_LENGTH].rstrip()


def _continues(before: str, character: str) -> bool:
    from unicodedata import category

    return (
        _JOINER in (before, character)
        or category(character)[0] == "M"
        or "\U0001f3fb" <= character <= "\U0001f3ff"  # skin tones
    )


# --- running it -----------------------------------------------------------------------------------

# The search is here and not in Python so that the caller looks at no directory: a subshell in the
# background walks the entries and becomes herdr, keeping the process id that is printed.
_SCRIPT = """
title=$1
shift
for directory do
    if [ -f "$directory/herdr" ] && [ -x "$directory/herdr" ]; then
        exec "$directory/herdr" notification show "$title" --sound request
    fi
done >/dev/null &
echo $!
"""

# A notifier takes a seat before it starts and leaves it once it has ended.
_seats: list[None] = [None] * LIMIT
_running: list[_Notifier] = []


def _notify(message: object) -> None:
    """Start herdr, unless as many as may run are running and none of them can be ended."""
    directories = [d for d in os.environ.get("PATH", "").split(":") if d.startswith("/")]
    if not directories:
        return
    if not _take_seat():
        logger().debug("herdr was not told: %d notifiers are still running", LIMIT)
        return
    notifier = None
    try:
        notifier = _Notifier(_title(message), directories)
        notifier.watch()
    finally:
        if notifier is None:
            _seats.append(None)
        else:
            _running.append(notifier)


def _take_seat() -> bool:
    _sweep(_Notifier.ended)
    if not _seats:
        _sweep(_Notifier.end)
    try:
        _seats.pop()
    except IndexError:
        return False
    return True


def _sweep(gone: Callable[[_Notifier], bool]) -> None:
    """Clear the seats of the notifiers of which ``gone`` is true, oldest first."""
    for _ in range(len(_running)):
        try:
            notifier = _running.pop(0)  # from here on no other thread looks at it
        except IndexError:
            return
        left = False
        try:
            left = gone(notifier)
        finally:
            if left:
                _seats.append(None)
            else:
                _running.append(notifier)


class _Notifier:
    """A herdr on its way: the shell that starts it, and a pidfd that tells when it has ended."""

    __slots__ = ("_pid", "_pidfd", "_shell", "_since", "_unwatched")

    def __init__(self, title: str, directories: list[str]) -> None:
        import subprocess
        import time

        # The title as UTF-8, whatever the locale: herdr refuses arguments that are not.
        self._shell: subprocess.Popen[bytes] = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "sh", title.encode(), *directories],
            bufsize=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            close_fds=True,
            start_new_session=True,
        )
        self._since = time.monotonic()
        self._pid = 0
        self._pidfd: int | None = None
        self._unwatched = True  # may be running, and nothing tells whether it is

    def watch(self) -> None:
        """Learn which process herdr is, then wait for the shell, both for a bounded time.

        A shell that takes longer is collected at a later notification.
        """
        from contextlib import suppress
        from subprocess import TimeoutExpired

        assert self._shell.stdout is not None
        with self._shell.stdout as printed:
            if not _readable(printed.fileno(), SHELL_PATIENCE):
                return
            self._open(int(os.read(printed.fileno(), 32) or b"0"))
        with suppress(TimeoutExpired):
            self._shell.wait(SHELL_PATIENCE)

    def _open(self, pid: int) -> None:
        """Open a pidfd on herdr, if that is what ``pid`` still is."""
        pidfd = None
        try:
            pidfd = os.pidfd_open(pid)
            # The shell was not waited for, so its process id is not free, and nobody but those
            # whom it started is in the session of that name: this is no stranger.
            if os.getsid(pid) == self._shell.pid:
                self._pid, self._pidfd, pidfd = pid, pidfd, None
            self._unwatched = False
        except ProcessLookupError:
            self._unwatched = False  # it has ended already
        except (AttributeError, OSError):
            pass  # no pidfd in this Python, this kernel or this sandbox
        finally:
            if pidfd is not None:
                os.close(pidfd)

    def ended(self) -> bool:
        """Whether shell and herdr have ended; if so nothing is left of them here."""
        import time

        if self._shell.poll() is None:
            return False
        if self._pidfd is None:
            return not self._unwatched or time.monotonic() - self._since >= PATIENCE
        return self._collect(0)

    def end(self) -> bool:
        """Kill shell and herdr if they hang; whether they are gone."""
        import signal
        import time

        if time.monotonic() - self._since < PATIENCE:
            return False
        if self._pidfd is None:
            self._shell.kill()  # does nothing once the shell was waited for
            return self.ended()
        # While herdr lives in the shell's group, the group's number belongs to nobody else. All of
        # it goes: a herdr that is a script would leave the one that hangs behind.
        try:
            if not _readable(self._pidfd, 0) and os.getpgid(self._pid) == self._shell.pid:
                os.killpg(self._shell.pid, signal.SIGKILL)
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return self._collect(0.01)

    def _collect(self, seconds: float) -> bool:
        """Close the pidfd once herdr has ended, waiting up to ``seconds`` for that."""
        from contextlib import suppress

        assert self._pidfd is not None
        if not _readable(self._pidfd, seconds):
            return False
        with suppress(AttributeError, OSError):
            # A child of ours only where this process is the reaper of orphans.
            os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
        self.forget()
        return True

    def forget(self) -> None:
        """Close the pidfd."""
        pidfd, self._pidfd = self._pidfd, None
        if pidfd is not None:
            os.close(pidfd)


def _readable(descriptor: int, seconds: float) -> bool:
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _forget_parents() -> None:
    """In a forked child: the notifiers are the parent's, the seats are all free."""
    for notifier in _running:
        notifier.forget()
    _running.clear()
    _seats[:] = [None] * LIMIT


os.register_at_fork(after_in_child=_forget_parents)


# --- telling what went wrong ----------------------------------------------------------------------

_reported = False


def _report(error: Exception) -> None:
    """Log ``error``: as a warning the first time, once a process, and quietly from then on."""
    global _reported
    log = logger().debug if _reported else logger().warning
    _reported = True
    log("herdr could not be told that the agent waits: %s: %s", type(error).__name__, error)
