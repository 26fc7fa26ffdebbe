"""Shell scripts as a list of simple commands, with line numbers and unexpanded words.

`shlex` gives words but forgets their quotes and their lines, and both matter here: ``'$X'`` is
not ``"$X"``. This reads the part of the language that env files and launch scripts use: words,
quotes, comments, parameters, separators, redirections, here-documents. Control flow is left to
the caller, who finds the keywords with the commands.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_KEYWORDS = frozenset(
    ("if", "then", "else", "elif", "fi", "do", "done", "while", "until", "{", "}", "!")
)
_REDIRECTION = re.compile(r"<<<|<<-?|[<>]{1,2}[&|]?")
_PLAIN = re.compile(r"[^ \t<>;&|\n()\\'\"$`]+")
_END = frozenset(";&|\n()")


class ShellError(ValueError):
    """The text is no shell script: a quote or bracket has no end."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a word: literal text, or a parameter or command to expand."""

    text: str
    """The literal, or the name of the parameter (empty: a command or a term)."""
    quote: str = ""
    """``'``, ``"`` or nothing."""
    expands: bool = False
    operator: str = ""
    """``:-``, ``-``, ``:=``, ``=``, ``:+``, ``+``, ``:?``, ``?`` of ``${X:-word}``."""
    operand: str = ""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command."""

    parts: tuple[Part, ...]

    def plain(self) -> str:
        """Return the word with its parameters written out as they stand."""
        return "".join(f"${{{p.text}}}" if p.expands else p.text for p in self.parts)

    def expand(self, lookup: Callable[[Part], str | None]) -> str | None:
        """Return the expanded word, or None where a part of it is not known."""
        found = [lookup(p) if p.expands else p.text for p in self.parts]
        return None if None in found else "".join(text for text in found if text is not None)


@dataclass(slots=True)
class Command:
    """One simple command."""

    line: int
    words: list[Word] = field(default_factory=list)
    end: str = "\n"
    """What ended it: a newline, ``;``, ``&``, ``|``, ``&&``, ``||`` or a bracket."""
    after_pipe: bool = False
    keywords: list[str] = field(default_factory=list)
    """``if``, ``then``, ``fi`` ... in front of it; a keyword may stand without a command."""

    @property
    def subshell(self) -> bool:
        """Whether it runs in a process of its own, so that its assignments are lost."""
        return self.end in ("|", "&") or self.after_pipe

    def split(self) -> tuple[dict[str, Word], list[Word]]:
        """Return the assignments in front, by name, and the words of the command."""
        assignments: dict[str, Word] = {}
        for index, word in enumerate(self.words):
            pair = assignment(word)
            if pair is None:
                return assignments, self.words[index:]
            assignments[pair[0]] = pair[1]
        return assignments, []


def assignment(word: Word) -> tuple[str, Word] | None:
    """Return name and value of ``NAME=value``, or None for another word."""
    first = word.parts[0] if word.parts else Part("")
    match = None if first.quote or first.expands else _ASSIGNMENT.match(first.text)
    if not match:
        return None
    rest = first.text[match.end() :]
    parts = ((Part(rest),) if rest else ()) + word.parts[1:]
    return match[1], Word(parts)


def commands(text: str, *, start: int = 1) -> list[Command]:
    """Return the simple commands of a script.

    Raises:
        ShellError: a quote, a parameter or a here-document has no end.
    """
    return _Lexer(text, start).run()


class _Lexer:
    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.at = 0
        self.line = start
        self.found: list[Command] = []
        self.current = Command(start)
        self.heredocs: list[str] = []
        self.piped = False

    def run(self) -> list[Command]:
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t":
                self.at += 1
            elif char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif char in _END:
                self._separator(char)
            elif char in "<>":
                self._redirection()
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
                self.line += 1
            else:
                self._add(self._word())
        self._finish("\n")
        return self.found

    def _add(self, word: Word) -> None:
        if not self.current.words:
            self.current.line = self.line
            first = word.parts[0] if len(word.parts) == 1 else None
            if first and not first.quote and first.text in _KEYWORDS:
                self.current.keywords.append(first.text)
                return
        # A number in front of a redirection is a file descriptor, not a word.
        if self.text[self.at : self.at + 1] in "<>" and word.plain().isdigit():
            return
        self.current.words.append(word)

    def _finish(self, end: str) -> None:
        if self.current.words or self.current.keywords:
            self.current.end = end
            self.current.after_pipe = self.piped
            self.found.append(self.current)
        self.piped = end == "|"
        self.current = Command(self.line)

    def _separator(self, char: str) -> None:
        double = self.text[self.at : self.at + 2]
        end = double if double in ("&&", "||", ";;") else char
        self._finish(end)
        self.at += len(end)
        if char == "\n":
            self.line += 1
            for word in self.heredocs:
                self._skip_heredoc(word)
            self.heredocs = []

    def _redirection(self) -> None:
        match = _REDIRECTION.match(self.text, self.at)
        operator = match[0] if match else self.text[self.at]
        self.at += len(operator)
        while self.text[self.at : self.at + 1] in (" ", "\t"):
            self.at += 1
        if self.at < len(self.text) and self.text[self.at] not in _END:
            target = self._word()
            if operator in ("<<", "<<-"):
                self.heredocs.append("".join(part.text for part in target.parts))

    def _skip_heredoc(self, word: str) -> None:
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            stop = len(self.text) if end < 0 else end
            line = self.text[self.at : stop]
            self.at = min(len(self.text), stop + 1)
            self.line += 1
            if line.lstrip("\t") == word:
                return

    def _word(self) -> Word:
        parts: list[Part] = []
        plain: list[str] = []

        def flush() -> None:
            if plain:
                parts.append(Part("".join(plain)))
                plain.clear()

        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t<>" or char in _END:
                break
            if char == "\\":
                following = self.text[self.at + 1 : self.at + 2]
                if following == "\n":
                    self.line += 1
                elif following:
                    flush()
                    parts.append(Part(following, "\\"))
                self.at += 2
            elif char == "'":
                flush()
                parts.append(Part(self._until("'"), "'"))
            elif char == '"':
                flush()
                parts += self._double()
            elif char in "$`":
                flush()
                parts.append(self._parameter(""))
            else:
                plain.append(_PLAIN.match(self.text, self.at)[0])  # type: ignore[index]
                self.at += len(plain[-1])
        flush()
        return Word(tuple(parts))

    def _until(self, quote: str) -> str:
        end = self.text.find(quote, self.at + 1)
        if end < 0:
            raise ShellError(f"line {self.line}: unterminated quote")
        inside = self.text[self.at + 1 : end]
        self.line += inside.count("\n")
        self.at = end + 1
        return inside

    def _double(self) -> list[Part]:
        parts: list[Part] = []
        plain: list[str] = []
        opened = self.line
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != '"':
            char = self.text[self.at]
            following = self.text[self.at + 1 : self.at + 2]
            if char == "\\" and following and following in '$`"\\\n':
                if following != "\n":
                    plain.append(following)
                self.line += following == "\n"
                self.at += 2
            elif char in "$`":
                parts.append(Part("".join(plain), '"'))
                plain = []
                parts.append(self._parameter('"'))
            else:
                self.line += char == "\n"
                plain.append(char)
                self.at += 1
        if self.at >= len(self.text):
            raise ShellError(f"line {opened}: unterminated quote")
        self.at += 1
        parts.append(Part("".join(plain), '"'))
        return parts

    def _parameter(self, quote: str) -> Part:
        following = self.text[self.at + 1 : self.at + 2]
        if self.text[self.at] == "`" or following == "(":
            self._bracketed() if following == "(" else self._until("`")
            return Part("", quote, expands=True)
        if following == "{":
            return self._braced(quote)
        if name := NAME.match(self.text, self.at + 1):
            self.at = name.end()
            return Part(name[0], quote, expands=True)
        if following and following in "0123456789@*#?-$!":
            self.at += 2
            return Part(following, quote, expands=True)
        self.at += 1
        return Part("$", quote)

    def _braced(self, quote: str) -> Part:
        end = self.text.find("}", self.at)
        if end < 0:
            raise ShellError(f"line {self.line}: unterminated ${{")
        inside = self.text[self.at + 2 : end]
        self.at = end + 1
        self.line += inside.count("\n")
        match = re.fullmatch(r"([A-Za-z_]\w*|[0-9@*#?])(?:(:?[-=+?])([^\n]*))?", inside)
        if not match:
            return Part("", quote, expands=True)
        return Part(match[1], quote, True, match[2] or "", (match[3] or "").strip("\"'"))

    def _bracketed(self) -> None:
        depth = 0
        opened = self.line
        while self.at < len(self.text):
            char = self.text[self.at]
            depth += (char == "(") - (char == ")")
            self.line += char == "\n"
            self.at += 1
            if depth == 0 and char == ")":
                return
        raise ShellError(f"line {opened}: unterminated $(")
