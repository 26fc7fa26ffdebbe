"""systemd's own grammar of environment files, state by state (``basic/env-file.c``, 252)."""

from __future__ import annotations

from collections.abc import Iterator

_COMMENT = "#;"
_NEWLINE = "\n\r"
_BLANK = " \t\n\r"
_ESCAPED = '"\\`$'


def parse_environment_file(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of every assignment, in order; a later one replaces an earlier.

    Names are as they stand (``export NCCL_PROTO`` is one, and no valid variable).
    """
    state = "pre_key"
    key: list[str] = []
    value: list[str] = []
    blank_at: int | None = None
    for char in text:
        if state == "pre_key":
            if char in _COMMENT:
                state = "comment"
            elif char not in _BLANK:
                state, key = "key", [char]
        elif state == "key":
            if char in _NEWLINE:
                state = "pre_key"
            elif char == "=":
                state, value, blank_at = "pre_value", [], None
            else:
                key.append(char)
        elif state == "pre_value":
            if char in _NEWLINE:
                yield "".join(key).rstrip(_BLANK), "".join(value)
                state = "pre_key"
            elif char in "'\"\\":
                state = {"'": "single", '"': "double", "\\": "escape"}[char]
            elif char not in _BLANK:
                state = "value"
                value.append(char)
        elif state == "value":
            if char in _NEWLINE:
                yield "".join(key).rstrip(_BLANK), "".join(value[:blank_at])
                state = "pre_key"
            elif char == "\\":
                state, blank_at = "escape", None
            else:
                if char not in _BLANK:
                    blank_at = None
                elif blank_at is None:
                    blank_at = len(value)
                value.append(char)
        elif state == "escape":
            state = "value"
            if char not in _NEWLINE:
                value.append(char)
        elif state == "single":
            if char == "'":
                state = "pre_value"
            else:
                value.append(char)
        elif state == "double":
            if char == '"':
                state = "pre_value"
            elif char == "\\":
                state = "double_escape"
            else:
                value.append(char)
        elif state == "double_escape":
            state = "double"
            if char in _ESCAPED:
                value.append(char)
            elif char != "\n":
                value += ["\\", char]
        elif state == "comment":
            if char == "\\":
                state = "comment_escape"
            elif char in _NEWLINE:
                state = "pre_key"
        else:
            # Before 254 a backslash at the end of a comment swallowed the next line.
            state = "comment"
    if state not in ("pre_key", "key", "comment", "comment_escape"):
        end = blank_at if state == "value" else None
        yield "".join(key).rstrip(_BLANK), "".join(value[:end])
