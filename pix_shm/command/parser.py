"""The arguments of ``pix``: every command, and what its help says."""

from __future__ import annotations

import argparse

from pix_shm._version import __version__
from pix_shm.command.output import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

COMMANDS = {
    "summary": "summary",  # without a command
    "get": "settings",
    "set": "settings",
    "reset": "settings",
    "show": "settings",
    "schema": "schema",
    "agents": "agents",
    "state": "state",
    "watch": "following",
    "wait": "following",
    "run": "running",
    "doctor": "doctor",
    "completion": "completion",
}
"""Which module of this package runs a command: by the function of its name, with an underscore at
its end. Loaded when it is needed, so that no command pays for another."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {visible(message)}\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    # In both places, since people write it in either; the later one counts.
    common = _Parser(add_help=False)
    common.add_argument(
        "--agent-dir",
        metavar="DIR",
        default=argparse.SUPPRESS,
        help="the agent directory (default: $PI_CODING_AGENT_DIR, else ~/.pi/agent)",
    )
    root = _Parser(
        prog="pix",
        parents=[common],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Settings, agents and health of what the agents of this machine share.\n"
        "Without a command: the settings, to be changed on a terminal, else printed.",
        epilog="examples:\n"
        "  pix set pretty.icons ascii\n"
        "  pix show\n"
        "  pix state\n"
        "  pix run -- make test\n"
        "  pix doctor\n"
        "\n"
        "Exit status: 0 done, 1 could not be done, 2 the arguments make no sense.\n"
        "'pix COMMAND --help' has more.",
    )
    root.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = root.add_subparsers(dest="command", metavar="COMMAND", title="commands")

    def add(name: str, does: str, examples: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            parents=[common],
            formatter_class=argparse.RawDescriptionHelpFormatter,
            help=does,
            description=does[0].upper() + does[1:] + ".",
            epilog=f"examples:\n{examples}",
        )

    def add_json(command: argparse.ArgumentParser) -> None:
        command.add_argument("--json", action="store_true", help="print JSON")

    path_help = "path of a setting, such as pretty.icons"

    get = add("get", "print one setting", "  pix get pretty.icons\n  pix get --json collapse")
    get.add_argument("path", metavar="PATH", help=f"{path_help}, or of a section")
    add_json(get)

    set_ = add(
        "set",
        "change one setting",
        "  pix set pretty.icons ascii\n"
        "  pix set pretty.maxRenderWidth 80%\n"
        "  pix set collapse.tools.bash false\n"
        "  pix set gate.autoApprove '[\"^ls\\\\b\"]'",
    )
    set_.add_argument("path", metavar="PATH", help=path_help)
    set_.add_argument("value", metavar="VALUE", help="as the setting has it; lists are JSON")

    reset = add(
        "reset",
        "make settings inherit their defaults again",
        "  pix reset pretty.icons\n  pix reset collapse pretty.diff",
    )
    reset.add_argument("paths", metavar="PATH", nargs="+", help=f"{path_help}, or of a section")

    show = add("show", "print every setting, '*' where it is set", "  pix show\n  pix show --json")
    add_json(show)

    add(
        "schema", "print the JSON Schema of pix.json, for editors", "  pix schema > pix.schema.json"
    )

    agents = add("agents", "list the live agents", "  pix agents\n  pix agents --watch")
    agents.add_argument("--watch", action="store_true", help="redraw at every change")
    add_json(agents)

    state = add(
        "state",
        "print what the agents do together: blocked, working or idle",
        "  pix state\n  pix state --format '{state} {blocks} {message}'\n  pix state --json",
    )
    what = state.add_mutually_exclusive_group()
    what.add_argument(
        "--format",
        metavar="TEXT",
        help="print TEXT with {state}, {message}, {activities}, {blocks} filled in",
    )
    add_json(what)  # type: ignore[arg-type]

    watch = add(
        "watch",
        "print a line for each change of state or settings, until interrupted",
        "  pix watch\n  pix watch --json | jq .state",
    )
    add_json(watch)

    wait = add(
        "wait",
        "wait until the agents are in a state",
        "  pix wait idle && notify-send done\n  pix wait blocked --timeout 60",
    )
    wait.add_argument("state", metavar="STATE", choices=("idle", "working", "blocked"))
    wait.add_argument(
        "--timeout",
        metavar="S",
        type=_seconds,
        help="give up after S seconds, with exit status 1",
    )

    run = add(
        "run",
        "hold a lease while a program runs",
        "  pix run -- make test\n  pix run --block --message 'Merge?' -- git mergetool",
    )
    run.add_argument("--message", metavar="M", help="what others see (default: the program)")
    run.add_argument("--block", action="store_true", help="wait for the user, instead of working")
    run.add_argument("argv", metavar="COMMAND", nargs=argparse.REMAINDER, help="behind '--'")

    doctor = add(
        "doctor",
        "look for what is wrong, and say what to do",
        "  pix doctor\n  pix doctor --repair",
    )
    doctor.add_argument(
        "--repair",
        action="store_true",
        help="set an unreadable pix.json aside under a dated name, clear what is provably dead",
    )
    add_json(doctor)

    completion = add(
        "completion",
        "print the completion script of a shell",
        '  eval "$(pix completion bash)"\n  pix completion fish | source',
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))
    return root


def _seconds(text: str) -> float:
    seconds = float(text)
    if not seconds >= 0:
        raise ValueError(text)
    return seconds


_seconds.__name__ = "seconds"  # what argparse calls a wrong one
