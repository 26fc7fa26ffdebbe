"""Text of other processes made safe to print: no control characters, no secrets."""

from __future__ import annotations

import re
from collections.abc import Sequence

_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?)"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
"""Escape sequences: CSI, the string sequences (OSC, DCS, ...), and the short ones."""
_UNSAFE = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters, bytes that are no text, and what reorders or hides text; tabs stay."""
_SECRET_NAME = re.compile(
    r"api[-_]?key|token|secret|passw|passphrase|credential|private|signature"
    r"|auth(?!ors?$|ored)|cookie|access[-_]?key|(^|[^a-z0-9])(?:key|sig|pwd?|pass)$",
    re.IGNORECASE,
)
_NO_SECRET = re.compile(
    r"tokenizer|tokens?[-_]|[-_]tokens$|max[-_]?token|tokenspeed|token[-_](?:step|usage|bucket)",
    re.IGNORECASE,
)
_URL = re.compile(r"([a-z][a-z0-9+.-]*://)[^/\s]+@", re.IGNORECASE)
_BEARER = re.compile(
    r"\b(?:(bearer)(\s+)[^\s'\"]+|(basic)(\s+)[A-Za-z0-9+/]{12,}=*)", re.IGNORECASE
)
"""The values of an ``Authorization`` header, wherever they stand."""
_LOOKS_SECRET = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9_-]{8,}|gh[pousr]_[A-Za-z0-9]{8,}|xox[abprs]-[A-Za-z0-9-]{8,}"
    r"|AKIA[0-9A-Z]{12,}|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_.-]+|nvapi-[A-Za-z0-9_-]{8,}"
    r"|glpat-[A-Za-z0-9_-]{8,}|AIza[A-Za-z0-9_-]{30,})"
)
REDACTED = "***"
MAX_CHARS = 400


def printable(text: str, limit: int = MAX_CHARS) -> str:
    """Return text without escape sequences and control characters, cut to `limit`."""
    clean = _UNSAFE.sub("", _ESCAPE.sub("", text))
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."


def is_secret_name(name: str) -> bool:
    """Return whether an option or variable of this name holds a secret.

    >>> is_secret_name("--api-key"), is_secret_name("--tokenizer-path"), is_secret_name("HF_TOKEN")
    (True, False, True)
    """
    return bool(_SECRET_NAME.search(name)) and not _NO_SECRET.search(name)


def redacted(text: str) -> str:
    """Return text without what looks like a token, and without passwords in URLs."""
    return _LOOKS_SECRET.sub(REDACTED, _without_headers(_URL.sub(rf"\1{REDACTED}@", text)))


def _without_headers(text: str) -> str:
    return _BEARER.sub(lambda m: f"{m[1] or m[3]}{m[2] or m[4]}{REDACTED}", text)


def shown_value(name: str, value: str | None) -> str | None:
    """Return a variable's value as it may be printed: secrets are hidden."""
    if value is None:
        return None
    if is_secret_name(name):
        return REDACTED
    # What is stripped from a title is written out here: "LL\x1b[m" is not the value "LL".
    plain = redacted(value)
    if _UNSAFE.search(plain):
        plain = ascii(plain)[1:-1]
    return printable(plain)


def safe_arguments(arguments: Sequence[str]) -> list[str]:
    """Return a command line with its secrets replaced, safe to print.

    A secret is the value of an option or assignment with a telling name (``--api-key X``,
    ``--api-key=X``, ``TOKEN=X``, ``-H 'Authorization: ...'``), the password in a URL, and what has
    the form of a known kind of token.
    """
    safe: list[str] = []
    hide = False
    for argument in arguments:
        argument = _without_headers(argument)
        if re.search(r"\s", argument) and not hide:
            # A title, or a command inside the command line: words of its own.
            words = re.split(r"(\s+)", argument)
            words[::2] = safe_arguments(words[::2])
            safe.append(printable("".join(words)))
            continue
        text, hide = _safe_argument(argument, hide)
        safe.append(text)
    return safe


def _safe_argument(argument: str, hide: bool) -> tuple[str, bool]:
    """Return one argument, safe, and whether the next one is a secret.

    An option may take several keys: they are hidden up to the next option.
    """
    if hide and not argument.startswith("-"):
        return (REDACTED if argument else ""), True
    for separator in ("=", ":"):
        name, found, value = argument.partition(separator)
        address = separator == ":" and value.startswith("//")
        if found and value and not address and is_secret_name(name.strip("'\"")):
            return f"{printable(name)}{separator}{REDACTED}", False
    option = argument.startswith("-") or argument.endswith(":")
    secret = option and is_secret_name(argument.rstrip(":"))
    return printable(redacted(argument)), secret
