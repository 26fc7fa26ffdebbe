"""What an NCCL log says: versions, ranks, variables, transports, choices, failures.

`NcclLog` takes lines one at a time and keeps only what is different, so that a log of any length
is read in bounded memory. Ranks are told apart by host, process and bracketed device, through
the lines that name a rank, never by the order of lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from collbench.readers import nccl_lines as nl
from collbench.readers.nccl_lines import Message, Source
from collbench.readers.nccl_seen import ChoiceSeen, EnvSeen, Init
from collbench.readers.text import open_regular, stream

MAX_KEPT = 1 << 16
"""Most different things of one sort that are kept; beyond it the log is not one of NCCL."""


class NcclLog:
    """Everything that is read from a log; feed lines, then ask."""

    def __init__(self) -> None:
        self.messages = 0
        self.versions: dict[str, int] = {}
        """Version -> line."""
        self.cudas: dict[str, int] = {}
        self.versions_of: dict[tuple[str, int], dict[str, int]] = {}
        """(host, pid) -> versions that this one process printed."""
        self.server_version: tuple[str, int] | None = None
        self.inits: dict[Init, None] = {}
        self.named: dict[Source, int] = {}
        """Sources whose rank is known by a device list or ``[Rank n]``."""
        self.device_names: dict[int, str] = {}
        self.env_of: dict[Source, dict[str, EnvSeen]] = {}
        self.torn_env: dict[Source, set[str]] = {}
        """Variables of which only a torn line tells: neither live nor lacking."""
        self.transports: Counter[str] = Counter()
        self.links: dict[tuple[int, int, str], int] = {}
        """(from, to, transport) -> line."""
        self.choices: dict[tuple[str | None, int, str, str], ChoiceSeen] = {}
        self._known: dict[bytes, ChoiceSeen | str] = {}
        """Message -> what it adds to, empty for nothing: the same ones come again and again."""
        self.other_paths: dict[tuple[str, str], int] = {}
        self.coll_channels: int | None = None
        self.graphs: dict[tuple[int, int, float, str], int] = {}
        self.graph_types: set[str] = set()
        self.fallbacks: dict[int, int] = {}
        self.p2p_off: dict[tuple[int, int], int] = {}
        self.shm_extend: tuple[int, int] | None = None
        self.shm_create: tuple[int, int] | None = None
        self.shm_space: int | None = None
        self.no_algorithm: tuple[dict[str, str | None], int] | None = None
        self.cuda_failure: tuple[str, int] | None = None
        self.gave_up: tuple[str, int] | None = None
        self.rejected: tuple[dict[str, str | None], int] | None = None
        self.invalid: dict[str, int] = {}
        self.backends: tuple[list[str], int] | None = None
        self.timeout: tuple[dict[str, Any], int] | None = None
        self.options: dict[str, int] = {}
        """Options of the server that make it write variables -> line."""

    def feed(self, number: int, raw: bytes, whole: bool = True) -> None:
        """Take one raw line without its end; `whole` is False where that end is missing."""
        if raw.startswith(b'{"log":"'):
            raw = nl.unwrapped(raw)
        if b"NCCL " not in raw:
            if nl.RARE.search(raw):
                self._plain(nl.clean(raw), number, whole)
            return
        self.messages += 1
        if not nl.is_telling(raw):
            return
        key = nl.without_prefix(raw)
        counted = self._known.get(key) if whole else None
        if counted is None:
            self._new(number, raw, whole, key)
        elif isinstance(counted, ChoiceSeen):
            counted.count += 1
        elif counted:
            self.transports[counted] += 1

    def _new(self, number: int, raw: bytes, whole: bool, key: bytes) -> None:
        line = nl.clean(raw)
        # Without NVLink switches, NCCL goes on after a warning of its NVLS transport.
        if self.cuda_failure is None and whole and b"nvls" not in raw:
            failed = nl.CUDA_FAILURE.search(line)
            self.cuda_failure = (failed[1], number) if failed else None
        message = nl.split(line, whole)
        if message is None:
            self.messages -= 1
            self._plain(line, number, whole)
            return
        if message.rank is not None and message.source.pid >= 0:
            self.named.setdefault(message.source, message.rank)
        counted = self._message(message, number) or ""
        if whole and len(self._known) < MAX_KEPT and len(key) < 512:
            self._known[key] = counted

    def read(self, lines: Iterable[tuple[int, bytes, bool]]) -> NcclLog:
        """Take many lines and return this log."""
        for number, raw, whole in lines:
            self.feed(number, raw, whole)
        return self

    def _message(self, message: Message, number: int) -> ChoiceSeen | str | None:
        """Keep what is new in a message; return what a repetition of it would count for."""
        text = message.text
        if " via " in text:
            return self._link(message, number)
        if " Bytes -> " in text:
            return self._choice(text, number, message.ended)
        if "- Init " in text:
            self._init(message, number)
        elif " set " in text and text.startswith("NCCL_"):
            self._env(message, number)
        elif text.startswith("NCCL version"):
            self._version(text, number, message.ended, message.source)
        else:
            self._other(message, text, number)
        return None

    def _plain(self, line: str, number: int, whole: bool) -> None:
        """Lines without NCCL's prefix: the bare version, and what servers and torch print."""
        if "NCCL version" in line:
            self._version(line, number, whole, nl.UNKNOWN)
        if match := nl.SERVER_NCCL.search(line):
            if self.server_version is None:
                self.server_version = match[1], number
        elif match := nl.BACKENDS.search(line):
            if match[2].startswith("tp") and self.backends is None:
                names = [name.strip(" '\"") for name in match[1].split(",")]
                self.backends = [name for name in names if name], number
        elif match := nl.TIMEOUT.search(line):
            if self.timeout is None:
                self.timeout = {"op": match[2], "seq": int(match[1])}, number
        elif match := nl.DEVICE.search(line):
            source = Source(match[3], int(match[2]), int(match[4]))
            self.named[source] = int(match[1])
            self.device_names[int(match[1])] = match[6].strip()
        if self.gave_up is None and (match := nl.GAVE_UP.search(line)):
            self.gave_up = match[1], number
        for match in nl.SERVER_OPTION.finditer(line):
            self.options.setdefault((match[1] or match[2]).replace("-", "_"), number)
        if nl.BATCH_INVARIANT.search(line):
            self.options.setdefault("batch_invariant", number)

    def _version(self, text: str, number: int, ended: bool, source: Source) -> None:
        match = nl.VERSION.search(text.rstrip())
        if not match or not ended:
            return
        self.versions.setdefault(match[1], number)
        if match[2]:
            self.cudas.setdefault(match[2], number)
        if source.pid >= 0 and len(self.versions_of) < MAX_KEPT:
            self.versions_of.setdefault((source.host, source.pid), {}).setdefault(match[1], number)

    def _init(self, message: Message, number: int) -> None:
        match = nl.INIT.search(message.text)
        if not match or len(self.inits) >= MAX_KEPT:
            return
        named = nl.COMM_ID.search(message.text)
        init = Init(
            message.source,
            message.tid,
            named[1] if named else match[2],
            int(match[3]),
            int(match[4]),
            match[5] == "COMPLETE",
            match[1] or "",
            number,
        )
        if 0 <= init.rank < init.nranks <= MAX_KEPT:
            self.inits[init] = None

    def _env(self, message: Message, number: int) -> None:
        match = nl.ENV.match(message.text)
        stopped = nl.NUMBER.fullmatch(match[2].rstrip("\r")) if match else None
        if not match or not match[2] or not (message.ended or stopped):
            name = message.text.split(" ", 1)[0]
            if len(self.torn_env) < MAX_KEPT:
                self.torn_env.setdefault(message.source, set()).add(name[:64])
            return
        value = stopped[1] if stopped else match[2]
        if len(self.env_of) >= MAX_KEPT and message.source not in self.env_of:
            return
        held = self.env_of.setdefault(message.source, {})
        seen = held.get(match[1])
        if seen is None:
            if len(held) < 1024:
                held[match[1]] = EnvSeen(value, number, message.tid, stopped is not None)
        elif value != seen.value and len(seen.others) < 8:
            seen.others.add(value)

    def _link(self, message: Message, number: int) -> str | None:
        match = nl.LINK.match(message.text) if message.ended else None
        if not match:
            return None
        self.transports[match[3]] += 1
        if len(self.links) < MAX_KEPT:
            self.links.setdefault((int(match[1]), int(match[2]), match[3]), number)
        return match[3]

    def _choice(self, text: str, number: int, ended: bool) -> ChoiceSeen | None:
        match = nl.CHOICE.match(text)
        if not match:
            other = nl.OTHER_PATH.match(text)
            if other and len(self.other_paths) < MAX_KEPT:
                self.other_paths.setdefault((other[1], other[2]), number)
            return None
        algorithm, protocol = nl.algorithm(match[3]), nl.protocol(match[4])
        if algorithm is None or protocol is None or (match[5] is None and not ended):
            return None
        key = (match[1], int(match[2]), algorithm, protocol)
        seen = self.choices.get(key)
        if seen is not None:
            seen.count += 1
        elif len(self.choices) < MAX_KEPT:
            channels = f"{match[5]}..{match[6]}" if match[5] is not None else ""
            seen = self.choices[key] = ChoiceSeen(*key, channels, number)
        return seen

    def _other(self, message: Message, text: str, number: int) -> None:
        if match := nl.COLL_CHANNELS.match(text):
            if self.coll_channels is None:
                self.coll_channels = int(match[1])
        elif match := nl.GRAPH.match(text):
            key = (int(match[1]), int(match[2]), float(match[3]), match[4])
            self.graph_types.add(match[4])
            if len(self.graphs) < MAX_KEPT:
                self.graphs.setdefault(key, number)
        elif match := nl.FALLBACK.search(text):
            self.fallbacks.setdefault(int(match[1]), number)
        elif match := nl.P2P_OFF.search(text):
            pair = sorted((int(match[1]), int(match[2])))
            if len(self.p2p_off) < MAX_KEPT:
                self.p2p_off.setdefault((pair[0], pair[1]), number)
        elif (match := nl.RANK_LINE.match(text)) and message.source.pid >= 0:
            self.inits.setdefault(
                Init(
                    message.source, message.tid, match[1], int(match[2]), int(match[3]),
                    False, "named", number,
                )
            )  # fmt: skip
        else:
            self._failure(text, number)

    def _failure(self, text: str, number: int) -> None:
        if match := nl.SHM_EXTEND.search(text):
            self.shm_extend = self.shm_extend or (int(match[2]), number)
        elif match := nl.SHM_CREATE.search(text):
            self.shm_create = self.shm_create or (int(match[2]), number)
        elif nl.SHM_SPACE.search(text):
            self.shm_space = self.shm_space or number
        elif match := nl.NO_ALGORITHM.search(text):
            was = dict(nl.WAS_SET.findall(text))
            said = {"collective": match[1], "datatype": match[2]}
            said |= {name: was.get(name) for name in ("NCCL_ALGO", "NCCL_PROTO")}
            self.no_algorithm = self.no_algorithm or (said, number)
        elif match := nl.REJECTED.search(text):
            self.rejected = self.rejected or ({"token": match[1], "value": match[2]}, number)
        elif match := nl.NO_PREFIX.search(text):
            self.rejected = self.rejected or ({"token": None, "value": match[1]}, number)
        elif match := nl.INVALID.search(text):
            self.invalid.setdefault(match[2] or match[3], number)


def read_log(path: Path, progress: Callable[[int], None] | None = None) -> NcclLog:
    """Read a log of any size, streamed.

    Args:
        path: A regular file.
        progress: Called with the bytes read so far, about every MiB.

    Raises:
        UnreadableError: it cannot be opened.
    """
    log = NcclLog()
    done = told = 0
    with open_regular(path) as file:
        for number, raw, whole in stream(file):
            log.feed(number, raw, whole)
            done += len(raw) + 1
            if progress is not None and done - told >= 1 << 20:
                told = done
                progress(done)
    return log
