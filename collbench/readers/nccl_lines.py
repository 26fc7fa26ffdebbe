"""The messages of an NCCL log, 2.4 to 2.31, in any wrapping: one line in, one event out.

A message starts at the last ``host:pid:tid [dev] NCCL INFO`` of its line, so prefixes of Ray,
vLLM, docker, mpirun, srun or journald in front of it do not matter, and what another rank wrote
into the same line before it is a torn piece and not used. Only whole messages count.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from collbench.readers.text import strip_escapes


class Source(NamedTuple):
    """Who wrote a message: ranks are told apart by host, process and bracketed device."""

    host: str
    pid: int
    device: int


UNKNOWN = Source("", -1, -1)


class Message(NamedTuple):
    """One whole message."""

    source: Source
    tid: int
    text: str
    rank: int | None
    """The rank that the message itself names as its own (``[Rank 2]``)."""
    ended: bool
    """False for the last line of a cut file: a message with an open end may lack its tail."""


_HOST = re.compile(r"[A-Za-z0-9][\w.-]{0,252}$")
_NUMBERED = re.compile(r"\[(\d{1,6})\]")
_RANK = re.compile(r"\[Rank (\d{1,6})\] ")
_PLACE = re.compile(r"[\w./+-]{1,120}:\d{1,6}(?: \([^()]{1,80}\))? $")
RARE = re.compile(
    rb"is using nccl==|all-reduce backends|server_args=|Watchdog caught|atch.invarian|# +Rank"
    rb"|enable.(?:deterministic.inference|symm.mem|nccl.nvls|mscclpp)"
    rb"|nccl(?:UnhandledCuda|System|Remote)Error"
)
"""Lines without ``NCCL `` that are read all the same; most lines of a server log are neither."""
_places: dict[str, tuple[Source, int]] = {}


def split(line: str, ended: bool) -> Message | None:
    """Return the message of one line, or None where there is none."""
    at = line.rfind("NCCL INFO ")
    if at < 0 or "NCCL WARN " in line:
        at = max(at, line.rfind("NCCL WARN "))
        if at < 0:
            return None
    # 460 characters hold the longest place; a bounded tail keeps the search linear.
    tail = line[max(0, at - 460) : at].rsplit(" ", 3)
    key = f"{tail[-3]} {tail[-2]}" if len(tail) > 2 else ""
    place = _places.get(key)
    if place is None:
        place = _place(line[max(0, at - 460) : at])
        if len(_places) < 4096 and place[0].pid >= 0 and key.endswith("]"):
            _places[key] = place
    text = line[at + 10 :].rstrip()
    if line.endswith("\r") and text.startswith("NCCL_"):
        # In a log of other line ends, a carriage return behind a value is part of it.
        text += "\r"
    rank = None
    if text.startswith("[Rank ") and (named := _RANK.match(text)):
        text, rank = text[named.end() :], int(named[1])
    return Message(place[0], place[1], text, rank, ended)


def _place(head: str) -> tuple[Source, int]:
    """Return who wrote a message from what stands in front of ``NCCL INFO``."""
    located = _PLACE.search(head[-220:])
    if located:
        head = head[: len(head) - len(located[0])]
    words = head.rstrip(" ").rsplit(" ", 2)
    numbered = _NUMBERED.fullmatch(words[-1])
    if not numbered:
        return UNKNOWN, -1
    device = int(numbered[1])
    parts = words[-2].rsplit(":", 2) if len(words) > 1 else []
    if len(parts) == 3 and parts[1].isascii() and parts[1].isdigit() and parts[2].isdigit():
        host = _HOST.search(parts[0][-253:])
        if host:
            return Source(host[0], int(parts[1]), device), int(parts[2])
    return Source("", -1, device), -1


def is_telling(raw: bytes) -> bool:
    """Return whether a raw line with ``NCCL `` may say something that is kept.

    Written out: this runs for every line, and a loop over the words takes four times as long.
    """
    return (
        b" Bytes -> " in raw
        or b" via " in raw
        or b" set " in raw
        or b"- Init " in raw
        or b"WARN " in raw
        or b"NCCL version" in raw
        or b" coll channels" in raw
        or b"Pattern " in raw
        or b"Could not find" in raw
        or b"P2P is disabled" in raw
        or b" nRanks " in raw
        or b"[Rank " in raw
        or b"nvalid " in raw
        or b"failed" in raw
        or b"hared memory" in raw
        or b"unhandled " in raw
    )


def unwrapped(raw: bytes) -> bytes:
    """Return the line that docker's json-file driver has wrapped, or the raw one."""
    try:
        text = json.loads(raw)["log"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return raw
    return text.rstrip("\r\n").encode() if isinstance(text, str) else raw


def without_prefix(raw: bytes) -> bytes:
    """Return a raw line from its ``host:pid:tid`` on, so that time stamps do not make it new."""
    at = raw.rfind(b"NCCL INFO ")
    device = raw.rfind(b" [", 0, at) if at > 0 else -1
    return raw[raw.rfind(b" ", 0, device) + 1 :] if device > 0 else raw


def clean(raw: bytes) -> str:
    """Return a raw line as text without terminal escapes."""
    return strip_escapes(raw.decode("utf-8", "replace"))


VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)(?:\+cuda(\d+\.\d+))?$")
INIT = re.compile(
    r"(?:(\w{1,64}) )?comm (0x[0-9a-f]+) rank (\d+) n[rR]anks (\d+) "
    r".{0,160}- Init (START|COMPLETE)$"
)
COMM_ID = re.compile(r"commId (0x[0-9a-f]+)")
RANK_LINE = re.compile(r"comm (0x[0-9a-f]+) rank (\d+) n[rR]anks (\d+) nNodes (\d+) ")
ENV = re.compile(r"(NCCL_[A-Z0-9_]{1,64}) set (?:by environment )?to (.*)$")
NUMBER = re.compile(r"(-?\d+)\.$")
LINK = re.compile(
    r"(?:Channel|Ring) \d+(?:/\d+)? : (\d+)\[\w+\] -> (\d+)\[\w+\] (?:\[(?:send|receive)\] )?via "
    r"(P2P/(?:direct pointer|indirect/\d+\[\w+\]|IPC|CUMEM|MNNVL)(?:/read|/CE)*"
    r"|SHM(?:/direct|/CE)*|direct shared memory|NET/[\w.-]+(?: [\w.-]+)?/\d+\S*"
    r"|COLLNET/\S+|NVLS\S*)"
    r"(?: comm 0x\S+ nRanks \d+)?$"
)
CHOICE = re.compile(
    r"(?:(\w+): )?(\d+) Bytes -> Algo (\w+) proto (\w+) "
    r"(?:channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\}|time [\d.]+)"
)
OTHER_PATH = re.compile(r"(\w+) \[(Symmetric|Copy Engine)\]: (\d+) Bytes -> ")
COLL_CHANNELS = re.compile(r"(\d+) coll channels, ")
GRAPH = re.compile(
    r"Pattern (\d+), crossNic \d+, nChannels (\d+), (?:bw|speed) ([\d.]+)/[\d.]+, "
    r"type (\w+)/(\w+), "
)
FALLBACK = re.compile(r"Could not find a path for pattern (\d+), falling back to simple order")
P2P_OFF = re.compile(r"P2P is disabled between connected GPUs (\d+) and (\d+)\.")
SHM_EXTEND = re.compile(r"failed to extend (\S+) to (\d+) bytes")
SHM_CREATE = re.compile(r"creating shared memory segment (\S+) \(size (\d+)\)")
SHM_SPACE = re.compile(
    r"posix_fallocate failed|^(?=.*(?:shm|hared memory)).*No space left on device"
)
"""A disk may be full as well: only what names shared memory counts."""
CUDA_FAILURE = re.compile(r"NCCL WARN (Cuda failure .*)$")
GAVE_UP = re.compile(
    r"(unhandled (?:cuda|system) error|nccl(?:UnhandledCuda|System|Remote)Error"
    r"|remote process exited or there was a network error)"
)
"""What NCCL's caller prints of a call that came back with an error."""
NO_PEER = "peer access is not supported between"
NO_ALGORITHM = re.compile(
    r"[Nn]o algorithm/protocol (?:nor symKernelId )?available"
    r"(?: for function (\w+) with datatype (\w+))?"
)
WAS_SET = re.compile(r"(NCCL_ALGO|NCCL_PROTO) was set to (\S+?)\.?(?=\s|$)")
REJECTED = re.compile(r"Unrecognized (?:element|prefix) token \"(.*)\" when parsing \"(.*)\"$")
NO_PREFIX = re.compile(r"All entries except the first must have a prefix: \"(.*)\"")
INVALID = re.compile(r"Invalid (?:value (\S+) for (NCCL_\w+)|(NCCL_\w+) )")
SERVER_NCCL = re.compile(r"\b(?:vLLM|sglang|SGLang) is using nccl==(\d+\.\d+\.\d+)")
BACKENDS = re.compile(
    r"Using \[([^\]]{0,400})\] all-reduce backends .{0,60}for group '([^']{1,60})'"
)
TIMEOUT = re.compile(
    r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(\d+), OpType=(\w+),"
)
_OPTIONS = r"(?:deterministic.inference|symm.mem|nccl.nvls|mscclpp)"
SERVER_OPTION = re.compile(
    rf"\b(enable_{_OPTIONS})(?:=True|['\"]: ?[Tt]rue)|--(enable-{_OPTIONS})(?![\w=-])"
)
"""As the server prints its arguments, or on a command line."""
BATCH_INVARIANT = re.compile(r"VLLM_BATCH_INVARIANT\W{1,4}1\b|batch.invarian\w* (?:mode )?enabled")
DEVICE = re.compile(
    r"# +Rank +(\d+) +(?:Group +\d+ +)?Pid +(\d+) on +(\S+) device +(\d+) \[([^\]]{1,20})\] ?(.*)$"
)

ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")


def algorithm(text: str) -> str | None:
    """Return the algorithm of its name or its old number."""
    return _one_of(text, ALGORITHMS)


def protocol(text: str) -> str | None:
    """Return the protocol of its name or its old number."""
    return _one_of(text, PROTOCOLS)


def _one_of(text: str, names: tuple[str, ...]) -> str | None:
    if text.isdigit():
        return names[int(text)] if int(text) < len(names) else None
    return text.lower() if text.lower() in names else None
