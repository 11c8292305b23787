"""`ottla completion`: scripts for shells, made from the command line's own parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ottla.cli.common import OK, subcommand
from ottla.cli.main import full_parser

SHELLS: Final = ("bash", "zsh", "fish")


_NAMES: Final = {"TOPIC": "topics", "GROUP": "groups"}
"""The kind of completion for a positional argument with this name."""
_NEW_NAMES: Final = {("topics", "create")}
_LIST: Final = {"topics": "ottla topics list -q --timeout 2", "groups": "ottla groups list -q --timeout 2"}


class Level(NamedTuple):
    """A command or verb, with the words that may follow it."""

    path: tuple[str, ...]
    words: dict[str, str]
    options: dict[str, str]
    choices: dict[str, tuple[str, ...]]
    positional_choices: tuple[str, ...]
    names: str = ""
    """`topics` or `groups` if such a name is expected: the cluster lists them."""


def add_parser(subparsers: Any) -> None:
    """Add `completion` to the command line."""
    parser = subcommand(
        subparsers,
        "completion",
        "print a completion script for bash, zsh or fish",
        examples=(
            'bash:  eval "$(ottla completion bash)"                 # in ~/.bashrc',
            'zsh:   eval "$(ottla completion zsh)"                  # in ~/.zshrc, after compinit',
            "fish:  ottla completion fish > ~/.config/fish/completions/ottla.fish",
        ),
    )
    parser.add_argument("shell", choices=SHELLS)


def run(arguments: argparse.Namespace) -> int:
    levels = list(walk(full_parser()))
    print({"bash": bash, "zsh": zsh, "fish": fish}[arguments.shell](levels))
    return OK


def walk(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[Level]:
    """All commands and verbs, outermost first."""
    words: dict[str, str] = {}
    options: dict[str, str] = {}
    choices: dict[str, tuple[str, ...]] = {}
    positional: tuple[str, ...] = ()
    names = ""
    below: list[tuple[str, argparse.ArgumentParser]] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            words = {choice.dest: choice.help or "" for choice in action._choices_actions}
            below = list(action.choices.items())
            continue
        for option in action.option_strings:
            options[option] = (action.help or "").replace("%%", "%")
            if action.choices is not None:
                choices[option] = tuple(map(str, action.choices))
        if not action.option_strings and action.choices is not None:
            positional = tuple(map(str, action.choices))
        if not action.option_strings and path not in _NEW_NAMES:
            names = names or _NAMES.get(str(action.metavar).partition("[")[0], "")
    yield Level(path, words, options, choices, positional, names)
    for name, child in below:
        yield from walk(child, (*path, name))


def bash(levels: list[Level]) -> str:
    """One `case` for the words so far. If nothing else matches, file names are completed."""
    cases = []
    for level in levels:
        for option, values in level.choices.items():
            cases.append(f'    "{" ".join((*level.path, option))}") words="{" ".join(values)}";;')
        listed = (f"\\$({_LIST[level.names]} 2>/dev/null)",) if level.names else ()
        words = " ".join((*level.words, *level.positional_choices, *level.options, *listed))
        cases.append(f'    "{" ".join(level.path)}") words="{words}";;')
    known = " ".join(sorted({word for level in levels for word in level.path}))
    return "\n".join(
        (
            "# bash completion for ottla, made by: ottla completion bash",
            "_ottla() {",
            '  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" path="" words="" word',
            f'  local known=" {known} "',
            '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
            '    [[ $word != -* && $known == *" $word "* ]] && [ "$(_ottla_depth "$path")" -lt 2 ] \\',
            '      && path="${path:+$path }$word"',
            "  done",
            '  [[ $previous == -* ]] && _ottla_words "$path $previous"',
            '  [ -z "$words" ] && _ottla_words "$path"',
            '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
            "}",
            '_ottla_depth() { set -- $1; echo "$#"; }',
            "_ottla_words() {",
            '  case "$1" in',
            *cases,
            '    *) words="";;',
            "  esac",
            "}",
            "complete -o default -F _ottla ottla",
        )
    )


def _quoted(text: str) -> str:
    return text.replace("'", "'\\''").replace("[", "(").replace("]", ")").replace(":", "\\:")


def zsh(levels: list[Level]) -> str:
    cases = []
    for level in levels:
        entries = {**level.words, **dict.fromkeys(level.positional_choices, ""), **level.options}
        described = " ".join(f"'{_quoted(word)}:{_quoted(text)}'" for word, text in entries.items())
        for option, values in level.choices.items():
            cases.append(f"    '{' '.join((*level.path, option))}') found=({' '.join(values)});;")
        listed = f" $({_LIST[level.names]} 2>/dev/null)" if level.names else ""
        cases.append(f"    '{' '.join(level.path)}') found=({described}{listed});;")
    known = " ".join(sorted({word for level in levels for word in level.path}))
    return "\n".join(
        (
            "#compdef ottla",
            "# zsh completion for ottla, made by: ottla completion zsh",
            "_ottla() {",
            "  local -a found path_words",
            "  local word",
            f'  local known=" {known} "',
            "  for word in ${words[2,CURRENT-1]}; do",
            '    [[ $word != -* && $known == *" $word "* && ${#path_words} -lt 2 ]] && path_words+=($word)',
            "  done",
            "  local previous=${words[CURRENT-1]}",
            '  [[ $previous == -* ]] && _ottla_words "${path_words[*]:+${path_words[*]} }$previous"',
            '  [[ ${#found} -eq 0 ]] && _ottla_words "${path_words[*]}"',
            "  _describe 'ottla' found || _files",
            "}",
            "_ottla_words() {",
            '  case "$1" in',
            *cases,
            "  esac",
            "}",
            "compdef _ottla ottla",
        )
    )


def fish(levels: list[Level]) -> str:
    lines = ["# fish completion for ottla, made by: ottla completion fish"]
    commands = " ".join(levels[0].words)
    for level in levels:
        if not level.path:
            where = "__fish_use_subcommand"
        elif len(level.path) == 1:
            verbs = " ".join(level.words)
            where = f"__fish_seen_subcommand_from {level.path[0]}"
            where += f"; and not __fish_seen_subcommand_from {verbs}" if verbs else ""
        else:
            where = " ; and ".join(f"__fish_seen_subcommand_from {word}" for word in level.path)
        for word, text in level.words.items():
            lines.append(f"complete -c ottla -f -n '{where}' -a {word} -d '{_fish_quoted(text)}'")
        for word in level.positional_choices:
            lines.append(f"complete -c ottla -f -n '{where}' -a {word}")
        if level.names:
            lines.append(f"complete -c ottla -f -n '{where}' -a '({_LIST[level.names]} 2>/dev/null)'")
        for option, text in level.options.items():
            kind = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            values = f" -x -a '{' '.join(level.choices[option])}'" if option in level.choices else ""
            lines.append(f"complete -c ottla -n '{where}' {kind}{values} -d '{_fish_quoted(text)}'")
    lines.append(f"# commands: {commands}")
    return "\n".join(lines)


def _fish_quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
