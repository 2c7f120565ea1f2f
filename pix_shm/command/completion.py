"""``pix completion``: scripts for shells, made of the parser and of the settings' own rules.

Each script has the same two tables: which words may stand at a place (command, how many arguments
came before, the first of them), and which options a command has. What differs is how a shell looks
up words and is told of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pix_shm.command.output import write
from pix_shm.command.parser import parser
from pix_shm.command.values import find, places


class Word(NamedTuple):
    """What may be typed, and what it does."""

    text: str
    help: str = ""


class Tables(NamedTuple):
    """What the scripts are made of."""

    words: list[tuple[str, list[Word]]]
    """By ``command:place:first``, a pattern of the shell's ``case``; the first that fits counts."""
    options: list[tuple[str, list[Word]]]
    """By command; ``""`` before there is one."""
    valued: list[str]
    """Options that are followed by a value."""


def completion_(options: argparse.Namespace) -> int:
    """Print the script of a shell."""
    scripts: dict[str, Callable[[Tables], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    write(scripts[options.shell](tables()))
    return 0


def tables() -> Tables:
    """Return what may stand where."""
    root = parser()
    (commands,) = (a for a in root._actions if isinstance(a, argparse._SubParsersAction))
    named = [Word(str(c.dest), str(c.help)) for c in commands._choices_actions]
    found = Tables([(":*", named)], [("", _options(root))], [])
    parsers: dict[str, argparse.ArgumentParser] = commands.choices
    for name, each in parsers.items():
        found.words.extend(_words(name, each))
        found.options.append((name, _options(each)))
    for each in (root, *parsers.values()):
        for action in each._actions:
            if action.option_strings and action.nargs is None:
                found.valued.extend(o for o in action.option_strings if o not in found.valued)
    return found


def _options(of: argparse.ArgumentParser) -> list[Word]:
    return [
        Word(option, str(action.help))
        for action in of._actions
        for option in action.option_strings
        if option.startswith("--")
    ]


def _words(command: str, of: argparse.ArgumentParser) -> Iterator[tuple[str, list[Word]]]:
    arguments = [action for action in of._actions if not action.option_strings]
    for place, action in enumerate(arguments):
        at = "*" if action.nargs == "+" else place
        if action.dest in ("path", "paths"):
            # Only fields have values that one types; everything can be printed, or reset.
            paths = [Word(p) for p, field in places() if field or command != "set"]
            yield f"{command}:{at}:*", paths
        elif action.dest == "value":
            for path, _ in places():
                rule = find(path).rule
                if rule is not None and rule.choices:
                    yield f"{command}:{at}:{path}", [Word(choice) for choice in rule.choices]
            entry = find("collapse.tools.x").rule
            assert entry is not None
            yield f"{command}:{at}:collapse.tools.*", [Word(choice) for choice in entry.choices]
        elif action.choices:
            yield f"{command}:{at}:*", [Word(str(choice)) for choice in action.choices]


# --- bash and zsh -------------------------------------------------------------------------------

# Both walk over the words before the one that is being typed.
_WALK = """\
    for ((i = @FIRST@; i < @LAST@; i++)); do
        if [[ $command == run && ( -n $dashes || $place -gt 0 ) ]]; then
            ((place++ == 0)) && program=$i
            continue
        fi
        case ${words[i]} in
            @VALUED@) ((i++)) ;;
            --) dashes=1 ;;
            -*) [[ -n $dashes ]] && ((place++)) ;;
            *)
                if [[ -z $command ]]; then
                    command=${words[i]}
                else
                    ((place++ == 0)) && first=${words[i]}
                fi
                ;;
        esac
    done
"""

_BASH = """\
# Completion of pix for bash: eval "$(pix completion bash)"
_pix() {
    local words=("${COMP_WORDS[@]}") word=${COMP_WORDS[COMP_CWORD]}
    local i command= first= dashes= place=0 program=$COMP_CWORD found=
    COMPREPLY=()
@WALK@
    if ((i > COMP_CWORD)); then
        if [[ ${words[COMP_CWORD - 1]} == --agent-dir ]]; then
            mapfile -t COMPREPLY < <(compgen -d -- "$word")
        fi
        return
    fi
    if [[ $command == run && ( -n $dashes || $place -gt 0 || $word != -* ) ]]; then
        if declare -F _command_offset > /dev/null; then
            _command_offset "$program"
        elif ((place == 0)); then
            mapfile -t COMPREPLY < <(compgen -c -- "$word")
        else
            compopt -o filenames 2> /dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$word")
        fi
        return
    fi
    if [[ $word == -* && -z $dashes ]]; then
        case $command in
@OPTIONS@
        esac
    else
        case $command:$place:$first in
@WORDS@
        esac
    fi
    mapfile -t COMPREPLY < <(compgen -W "$found" -- "$word")
}
complete -F _pix pix"""

_ZSH = """\
#compdef pix
# Completion of pix for zsh: eval "$(pix completion zsh)", or as a file _pix in $fpath
_pix() {
    local word=${words[CURRENT]}
    local i command= first= dashes= place=0 program=$CURRENT
    local -a found
@WALK@
    if ((i > CURRENT)); then
        [[ ${words[CURRENT - 1]} == --agent-dir ]] && _directories
        return
    fi
    if [[ $command == run && ( -n $dashes || $place -gt 0 || $word != -* ) ]]; then
        words=("${(@)words[program, -1]}")
        ((CURRENT -= program - 1))
        _normal
        return
    fi
    if [[ $word == -* && -z $dashes ]]; then
        case $command in
@OPTIONS@
        esac
        _describe -o option found
    else
        case $command:$place:$first in
@WORDS@
        esac
        _describe word found
    fi
}
if [[ ${funcstack[1]} == _pix ]]; then
    _pix "$@"
elif (($+functions[compdef])); then
    compdef _pix pix
fi"""


def _bash(tables: Tables) -> str:
    def entry(pattern: str, words: list[Word]) -> str:
        return f"            {pattern}) found={_quoted(' '.join(w.text for w in words))} ;;"

    return _filled(_BASH, _walk(tables, "1", "COMP_CWORD"), tables, entry)


def _zsh(tables: Tables) -> str:
    def entry(pattern: str, words: list[Word]) -> str:
        listed = " ".join(_quoted(_described(word)) for word in words)
        return f"            {pattern}) found=({listed}) ;;"

    return _filled(_ZSH, _walk(tables, "2", "CURRENT"), tables, entry)


def _walk(tables: Tables, first: str, last: str) -> str:
    walk = _WALK.replace("@FIRST@", first).replace("@LAST@", last)
    return walk.replace("@VALUED@", " | ".join(tables.valued)).rstrip("\n")


def _filled(script: str, walk: str, tables: Tables, entry: Callable[[str, list[Word]], str]) -> str:
    options = "\n".join(entry(command or "''", words) for command, words in tables.options)
    words = "\n".join(entry(pattern, words) for pattern, words in tables.words)
    return script.replace("@WALK@", walk).replace("@OPTIONS@", options).replace("@WORDS@", words)


def _described(word: Word) -> str:
    text = word.text.replace(":", "\\:")
    return f"{text}:{word.help}" if word.help else text


# --- fish ---------------------------------------------------------------------------------------

_FISH = """\
# Completion of pix for fish: pix completion fish | source
function __pix_words
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l command ''
    set -l first ''
    set -l dashes ''
    set -l place 0
    set -l program
    set -l value ''
    for i in $words[2..]
        if test "$command" = run; and begin; test -n "$dashes"; or test $place -gt 0; end
            set program $program $i
            set place (math $place + 1)
            continue
        end
        if test -n "$value"
            set value ''
            continue
        end
        switch $i
            case @VALUED@
                set value $i
            case --
                set dashes 1
            case '-*'
                test -n "$dashes"; and set place (math $place + 1)
            case '*'
                if test -z "$command"
                    set command $i
                else
                    test $place -eq 0; and set first $i; and set program $i
                    set place (math $place + 1)
                end
        end
    end
    if test -n "$value"
        test "$value" = --agent-dir; and __fish_complete_directories "$word"
        return
    end
    if test "$command" = run
        if test -n "$dashes"; or test $place -gt 0; or not string match -q -- '-*' "$word"
            complete -C (string join ' ' -- (string escape -- $program) "$word")
            return
        end
    end
    if test -z "$dashes"; and string match -q -- '-*' "$word"
        switch "$command"
@OPTIONS@
        end
    else
        switch "$command:$place:$first"
@WORDS@
        end
    end
end
complete -c pix -f -a '(__pix_words)'"""


def _fish(tables: Tables) -> str:
    def entry(pattern: str, words: list[Word]) -> str:
        listed = " ".join(_fish_quoted(_tabbed(word)) for word in words)
        return f"            case {_fish_quoted(pattern)}\n                printf '%s\\n' {listed}"

    options = "\n".join(entry(command, words) for command, words in tables.options)
    words = "\n".join(entry(pattern, words) for pattern, words in tables.words)
    script = _FISH.replace("@VALUED@", " ".join(tables.valued))
    return script.replace("@OPTIONS@", options).replace("@WORDS@", words)


def _tabbed(word: Word) -> str:
    return f"{word.text}\t{word.help}" if word.help else word.text


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
