"""Follow the environment through a shell script until something is started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from collbench.readers.launch import Env, Var, find
from collbench.readers.launch.wrappers import (
    RUNTIMES,
    after_options,
    container_exec,
    env_command,
    mpi,
    sudo,
)
from collbench.readers.shell import Command, Part, ShellError, Word, assignment, commands
from collbench.readers.text import Section

_WRAPPERS = frozenset(
    ("exec", "nohup", "time", "setsid", "command", "builtin", "stdbuf", "chrt", "ionice", "tini")
)
_VALUED = {"nice": 0, "numactl": 0, "taskset": 1, "timeout": 1, "gosu": 1, "su-exec": 1}
"""Wrapper -> plain words it takes in front of the command."""
_MPI = frozenset(("mpirun", "mpiexec", "orterun", "prterun"))
_MAX_DEPTH = 8


@dataclass(slots=True)
class Started:
    """A command that starts something, with the environment it gets."""

    words: list[str]
    env: Env
    line: int
    section: Section
    lost_at: str | None = None
    """What dropped variables on the way here."""


@dataclass(slots=True)
class Walk:
    """Runs scripts over an environment; collects what they start."""

    sections: Sequence[Section]
    origin: str = "script"
    variables: Env = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    all_exported: bool = False
    started: list[Started] = field(default_factory=list)
    cut: dict[str, int] = field(default_factory=dict)
    depth: int = 0
    truth: list[bool] = field(default_factory=list)
    """One entry per open ``if``: whether its branch is taken."""

    def env(self) -> Env:
        """Return what a child process would get."""
        return {name: var for name, var in self.variables.items() if name in self.exported}

    def give(self, env: Env) -> Walk:
        """Put variables into the environment and return this walk."""
        self.variables |= env
        self.exported |= set(env)
        return self

    def run(self, section: Section) -> Walk:
        """Run a script; a syntax error ends it where it is."""
        if self.depth >= _MAX_DEPTH:
            return self
        try:
            parsed = commands(section.text, start=section.start)
        except ShellError:
            return self
        self.depth += 1
        skip = False
        for command in parsed:
            self._keywords(command)
            told = None
            if command.words and not skip and all(self.truth):
                told = self._command(command, section)
            # `[ -z "$X" ] && export X=1`: the second half runs if the test says so.
            skip = (command.end == "&&" and told is False) or (
                command.end == "||" and told is not False
            )
        self.depth -= 1
        return self

    def _keywords(self, command: Command) -> None:
        for word in command.keywords:
            if word == "if":
                self.truth.append(self._test(command) is not False)
            elif word in ("else", "elif") and self.truth:
                self.truth[-1] = not self.truth[-1]
            elif word == "fi" and self.truth:
                self.truth.pop()

    def _test(self, command: Command) -> bool | None:
        words = [word.expand(self._lookup) for word in command.words]
        if len(words) > 2 and words[0] in ("[", "test", "[[") and words[1] in ("-z", "-n"):
            value = words[2]
            if value is None:
                part = next((p for p in command.words[2].parts if p.expands), None)
                # A name that nothing in the snippet sets counts as unset.
                value = "" if part and part.text not in self.variables else None
            return None if value is None else (value == "") == (words[1] == "-z")
        return None

    def _command(self, command: Command, section: Section) -> bool | None:
        assigned, words = command.split()
        line = command.line
        if not words:
            for name, word in assigned.items():
                self._set(name, word, line, export=self.all_exported)
            if command.end == ";":
                self._note_cut(command, section)
            return True
        verb = words[0].plain()
        if verb in ("[", "test", "[["):
            return self._test(command)
        if command.subshell and verb in ("export", ".", "source", "unset", "set"):
            return None
        if verb in ("export", "declare", "typeset", "readonly"):
            for word in words[1:]:
                pair = assignment(word)
                if pair:
                    self._set(pair[0], pair[1], line, export=verb != "readonly")
                elif verb == "export":
                    self.exported.add(word.plain())
        elif verb == "set":
            options = [word.plain() for word in words[1:]]
            on = any(o.startswith("-") and "a" in o[1:] for o in options) or (
                options[:2] == ["-o", "allexport"]
            )
            off = any(o.startswith("+") and "a" in o[1:] for o in options)
            self.all_exported = (self.all_exported or on) and not off
        elif verb in (".", "source") and len(words) > 1:
            target = find(self.sections, words[1].plain())
            if target is not None and target is not section:
                self.run(target)
        elif verb == "unset":
            for word in words[1:]:
                self.variables.pop(word.plain(), None)
        elif verb == ":":
            for word in words[1:]:
                word.expand(self._lookup)
        else:
            own = {
                name: Var(word.expand(self._lookup), "script", line)
                for name, word in assigned.items()
            }
            texts = [self._text(word) for word in words]
            self.start(texts, self.env() | own, line, section, None)
        return None

    def _note_cut(self, command: Command, section: Section) -> None:
        """Remember a value that was written with a semicolon and cut there."""
        text = section.text.split("\n")[command.line - section.start]
        name = text.partition("=")[0].strip()
        if text.startswith(name + "=") and ":" in text.partition(";")[2]:
            self.cut[name] = command.line

    def _set(self, name: str, word: Word, line: int, *, export: bool) -> None:
        self.variables[name] = Var(word.expand(self._lookup), self.origin, line)
        if export or self.all_exported:
            self.exported.add(name)

    def _lookup(self, part: Part) -> str | None:
        held = self.variables.get(part.text)
        value = held.value if held else None
        if part.operator in (":-", "-", ":=", "="):
            chosen = value if value or (held and not part.operator.startswith(":")) else None
            if chosen is None and not (held and held.value is None):
                chosen = part.operand if "$" not in part.operand else None
            if "=" in part.operator and chosen is not None:
                self.variables[part.text] = Var(chosen, self.origin)
            return chosen
        if part.operator in (":+", "+"):
            return part.operand if value else ""
        return value

    def _text(self, word: Word) -> str:
        expanded = word.expand(self._lookup)
        return word.plain() if expanded is None else expanded

    def start(
        self, words: list[str], env: Env, line: int, section: Section, lost: str | None
    ) -> None:
        """Unwrap sudo, env, numactl and their like, and note what is started in the end."""
        while words:
            verb = words[0].rsplit("/", 1)[-1]
            rest = words[1:]
            if verb in _WRAPPERS:
                words = after_options(rest, "")
            elif verb in _VALUED:
                words = after_options(rest, "")[_VALUED[verb] :]
            elif verb == "env":
                words, env = env_command(rest, env, line)
            elif verb == "sudo":
                words, kept = sudo(rest, env)
                if set(env) - set(kept):
                    lost = lost or f"{section.base or 'script'}: sudo"
                env = kept
            elif verb == "ssh":
                words = after_options(rest, "bcDEeFIiJLlmOopQRSWw")[1:]
                if env:
                    lost = lost or f"{section.base or 'script'}: ssh"
                env = {}
                if len(words) == 1 and " " in words[0]:
                    self._remote(words[0], line, section, lost)
                    return
            elif verb in RUNTIMES and rest[:1] == ["exec"]:
                words, named = container_exec(rest[1:], env, line)
                if set(env) - set(named):
                    lost = lost or f"{section.base or 'script'}: {verb} exec"
                env = named
            elif verb in _MPI:
                words, env, dropped = mpi(rest, env, line)
                if dropped:
                    lost = lost or f"{section.base or 'script'}: {verb} without -x"
            elif verb in ("sh", "bash", "dash") and rest:
                self._shell(rest, env, line, section, lost)
                return
            else:
                break
        if words:
            self.started.append(Started(words, env, line, section, lost))

    def _shell(
        self, rest: list[str], env: Env, line: int, section: Section, lost: str | None
    ) -> None:
        flags = [word for word in rest if word.startswith("-")]
        plain = [word for word in rest if not word.startswith("-")]
        target = find(self.sections, plain[0]) if plain else None
        if any("c" in flag for flag in flags) and plain:
            target = Section(section.name, plain[0], line)
        if target is None:
            self.started.append(Started(rest, env, line, section, lost))
            return
        child = Walk(self.sections, self.origin, depth=self.depth).give(env).run(target)
        for started in child.started:
            started.lost_at = started.lost_at or lost
        self.started += child.started

    def _remote(self, text: str, line: int, section: Section, lost: str | None) -> None:
        child = Walk(self.sections, self.origin, depth=self.depth)
        child.run(Section(section.name, text, line))
        for started in child.started:
            started.lost_at = started.lost_at or lost
        self.started += child.started
