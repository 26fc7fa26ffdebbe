"""What each reader of an environment file makes of it, as its own source code does.

docker (``cli/pkg/kvfile``), sh (``set -a; . FILE``), compose (``compose-go/dotenv``), systemd
(``parse_env_file``), NCCL (``misc/param.cc``), kubectl (``env_file.go``) and python-dotenv. A
value of None depends on the caller's environment or on the version of the reader. Only names that
are valid variables are returned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from collbench.readers.shell import NAME, Part, ShellError, assignment, commands
from collbench.readers.systemd_env import parse_environment_file

BOM = "\ufeff"
Values = dict[str, str | None]
_BLANKS = re.compile(r"\s*")
_SPACES = re.compile("[ \t\v\f\r\x85\xa0]*")
_KEY = re.compile(r"[^=:\n]*")
_EXPORT = re.compile(r"export[ \t][ \t\v\f\r]*")
_QUOTED = {quote: re.compile(rf"(?:[^{quote}\\]|\\.)*{quote}", re.DOTALL) for quote in ("'", '"')}
_DOLLAR = re.compile(r"\$(?:\$|\{|[A-Za-z_])")


class ReaderError(ValueError):
    """The reader refuses the whole file."""


def docker(text: str) -> Values:
    """Return what ``docker run --env-file`` passes on.

    Raises:
        ReaderError: a name with a blank, or a line without a name.
    """
    found: Values = {}
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.removesuffix("\r").removeprefix(BOM if number == 1 else "\0").lstrip()
        if not line or line.startswith("#"):
            continue
        name, has_value, value = line.partition("=")
        if not name:
            raise ReaderError("line without a name")
        if " " in name or "\t" in name:
            raise ReaderError("key with a blank")
        # Both lines of a duplicate are passed on; which one wins is not the client's choice.
        known = found.get(name, value)
        found[name] = value if has_value and known == value else None
    return _valid(found)


def kubectl(text: str) -> Values:
    """Return what ``kubectl create configmap --from-env-file`` stores.

    Raises:
        ReaderError: an invalid name, or one given twice.
    """
    found: Values = {}
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.removesuffix("\r").removeprefix(BOM if number == 1 else "\0").lstrip()
        if not line or line.startswith("#"):
            continue
        name, has_value, value = line.partition("=")
        if not re.fullmatch(r"[-._a-zA-Z][-._a-zA-Z0-9]*", name):
            raise ReaderError("not a valid key")
        if name in found:
            raise ReaderError("key given twice")
        found[name] = value if has_value else None
    return _valid(found)


def sh(text: str) -> Values:
    """Return what ``set -a; . FILE`` leaves in the environment of a POSIX shell.

    Raises:
        ReaderError: the shell stops at a syntax error.
    """
    found: Values = {}

    def lookup(part: Part) -> str | None:
        # An unset variable and one of the caller look alike from here.
        return found.get(part.text) if not part.operator else None

    try:
        parsed = commands(text)
    except ShellError as error:
        raise ReaderError(f"syntax error: {error}") from error
    for command in parsed:
        if command.end in ("(", ")"):
            raise ReaderError(f"syntax error: line {command.line}: bracket")
        if command.subshell:
            continue
        assigned, words = command.split()
        verb = words[0].plain() if words else ""
        if not words:
            pairs = [(name, word) for name, word in assigned.items()]
        elif verb in ("export", "readonly", "declare", "typeset"):
            pairs = [pair for pair in map(assignment, words[1:]) if pair is not None]
        else:
            pairs = []
            if verb == "unset":
                for word in words[1:]:
                    found.pop(word.plain(), None)
        for name, word in pairs:
            tilde = bool(word.parts) and word.parts[0].text.startswith("~")
            unquoted = tilde and not word.parts[0].quote
            found[name] = None if unquoted else word.expand(lookup)
    return _valid(found)


def compose(text: str) -> Values:
    """Return what ``env_file`` of a compose service passes on.

    Raises:
        ReaderError: an invalid name, or a quote without an end.
    """
    found: Values = {}
    text = text.removeprefix(BOM)
    at = 0
    while True:
        at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
        if at >= len(text):
            return _valid(found)
        if text[at] == "#":
            at = _end_of_line(text, at)
            continue
        if export := _EXPORT.match(text, at):
            at = export.end()
        end = _KEY.match(text, at).end()  # type: ignore[union-attr]
        name = text[at:end].rstrip()
        if re.search(r"\s", name):
            raise ReaderError("key with a blank")
        if not re.fullmatch(r"[\w.\-\[\]]+", name):
            raise ReaderError("not a valid name")
        at = end + 1
        if text[end : end + 1] in ("", "\n"):
            found[name] = None
        else:
            found[name], at = _compose_value(text, _SPACES.match(text, at).end(), found)  # type: ignore[union-attr]


def _compose_value(text: str, at: int, found: Mapping[str, str | None]) -> tuple[str | None, int]:
    """Return the value that starts at `at`, and where it ends."""
    quote = text[at : at + 1]
    if quote not in ("'", '"'):
        end = _end_of_line(text, at)
        cut = text[at:end].partition(" #")[0].rstrip()
        # Older versions cut at any '#', newer ones only behind a blank.
        return (None if "#" in cut else _expanded(cut, found)), end
    match = _QUOTED[quote].match(text, at + 1)
    if not match:
        raise ReaderError("unterminated quote")
    inside = match[0][:-1].replace("\\" + quote, quote)
    if quote == '"':
        for escape, char in (("\\n", "\n"), ("\\r", "\r"), ("\\\\", "\\")):
            inside = inside.replace(escape, char)
        return _expanded(inside, found), match.end()
    return inside, match.end()


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _expanded(value: str, found: Mapping[str, str | None]) -> str | None:
    """Expand ``$X`` and ``${X}`` from earlier lines; None where the caller decides."""
    if not _DOLLAR.search(value):
        return value
    out, at = [], 0
    for match in re.finditer(r"\$(?:(\$)|([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", value):
        name = match[2] or match[3]
        known = "$" if match[1] else found.get(name)
        if known is None:
            return None
        out += [value[at : match.start()], known]
        at = match.end()
    tail = value[at:]
    return None if "${" in tail else "".join(out) + tail


def systemd(text: str) -> Values:
    """Return what ``EnvironmentFile=`` of a unit passes on."""
    return _valid(dict(parse_environment_file(text)))


def nccl_conf(text: str, version: tuple[int, ...] = ()) -> Values:
    """Return what NCCL sets from an nccl.conf, where the environment has nothing.

    Args:
        text: The file.
        version: The NCCL that reads it; from 2.30 it strips carriage returns.
    """
    found: Values = {}
    for line in text.split("\n"):
        if line.startswith("#") or "=" not in line:
            continue
        name, _, value = line.partition("=")
        if value.endswith("\r"):
            bare = value[:-1]
            value_or_none = None if not version else bare if version >= (2, 30) else value
        else:
            value_or_none = value
        found.setdefault(name, value_or_none[:1023] if value_or_none is not None else None)
    return _valid(found)


def dotenv(text: str) -> Values:
    """Return what python-dotenv reads; a bare name has no value there (None)."""
    found: Values = {}
    pattern = re.compile(
        r"[^\S\n]*(?:export[^\S\n]+)?([^=\#\s'\"]+)[^\S\n]*(?:(=)[^\S\n]*"
        r"(?:'((?:\\'|[^'\\]|\\[^'])*)'|\"((?:\\\"|[^\"\\]|\\[^\"])*)\"|([^\n]*)))?"
    )
    text = text.replace("\r\n", "\n")
    for match in pattern.finditer(text):
        if text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip():
            continue
        name, equals, single, double, bare = match.groups()
        if not equals:
            found[name] = None
        elif bare is not None:
            found[name] = _braces_only(re.sub(r"\s+#.*", "", bare).rstrip(), found)
        elif single is not None:
            found[name] = _braces_only(single.replace("\\'", "'"), found)
        else:
            found[name] = _braces_only((double or "").replace('\\"', '"'), found)
    return _valid(found)


def _braces_only(value: str, found: Mapping[str, str | None]) -> str | None:
    return _expanded(value, found) if "${" in value else value


def _valid(found: Values) -> Values:
    return {name: value for name, value in found.items() if NAME.fullmatch(name)}


READERS: dict[str, Callable[[str], Values]] = {
    "docker": docker,
    "sh": sh,
    "compose": compose,
    "systemd": systemd,
    "nccl_conf": nccl_conf,
    "kubectl": kubectl,
    "dotenv": dotenv,
}


@dataclass(frozen=True, slots=True)
class Refused:
    """A reader that takes nothing from the file, and why."""

    reason: str


def read_with(reader: str, text: str, version: tuple[int, ...] = ()) -> Values | Refused:
    """Return what `reader` makes of an environment file, or why it refuses it."""
    try:
        return nccl_conf(text, version) if reader == "nccl_conf" else READERS[reader](text)
    except ReaderError as error:
        return Refused(str(error))
