"""What a server's command line says about its collectives; families not modelled are refused.

Names are those of SGLang 0.5.23 and vLLM 0.33.0.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from collbench.errors import CollbenchError
from collbench.workload.buckets import Server

TP = ("--tp", "--tp-size", "--tensor-parallel-size", "-tp")
DRAFT = ("--speculative-num-draft-tokens",)
LARGEST = ("--cuda-graph-max-bs", "--max-cudagraph-capture-size")
EAGER = ("--disable-cuda-graph", "--enforce-eager")

REFUSED = {
    "--enable-dp-attention": "DP attention",
    "--enable-deepep-moe": "expert all-to-all (DeepEP)",
    "--enable-two-batch-overlap": "two-batch overlap",
    "--enable-dbo": "dual-batch overlap",
    "--enable-sequence-parallel": "sequence parallelism",
    "--enable-sequence-parallelism": "sequence parallelism",
    "--enable-single-batch-overlap": "single-batch overlap",
}
"""Switches."""
REFUSED_VALUES = {
    "--moe-a2a-backend": ("expert all-to-all", ("none",)),
    "--all2all-backend": ("expert all-to-all", ()),
    "-pp": ("pipeline parallelism", ("1",)),
    "-dcp": ("decode context parallelism", ("1",)),
    "-pcp": ("context parallelism", ("1",)),
    "--pp": ("pipeline parallelism", ("1",)),
    "--pp-size": ("pipeline parallelism", ("1",)),
    "--pipeline-parallel-size": ("pipeline parallelism", ("1",)),
    "--dcp-size": ("decode context parallelism", ("1",)),
    "--decode-context-parallel-size": ("decode context parallelism", ("1",)),
    "--prefill-context-parallel-size": ("context parallelism", ("1",)),
    "--attn-cp-size": ("context parallelism", ("1",)),
    "--moe-dense-tp-size": ("a separate group for dense layers", ()),
}
"""Options, and the values that mean "not used"."""
COMPILATION = ("-O", "--compilation-config", "-cc")
PASSES = re.compile(r"\benable_(?:sp|sequence_parallelism)\W{1,8}(?:true|1)\b", re.IGNORECASE)
"""vLLM's compilation passes that split all_reduces, in JSON or as ``-O.pass_config.X=true``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerArgs:
    """A server's command line."""

    flags: Mapping[str, str | None]
    """Option -> its value, None for a switch."""
    env: Mapping[str, str]
    """``NAME=VALUE`` words in front of the command."""
    server: Server | None = None
    """By the program named in it."""

    def number(self, names: tuple[str, ...]) -> int | None:
        """Return the integer given with one of some options.

        Raises:
            CollbenchError: it is no integer.
        """
        for name in names:
            value = self.flags.get(name)
            if value is not None:
                if not re.fullmatch(r"\d{1,9}", value):
                    raise CollbenchError(f"--server-args: {name} {value[:40]!r} is not a number")
                return int(value)
        return None

    @property
    def eager(self) -> bool:
        """Whether CUDA graphs are switched off."""
        return any(name in self.flags for name in EAGER)

    @property
    def draft_tokens(self) -> int | None:
        """Tokens verified per sequence, where the command line says.

        Raises:
            CollbenchError: the value cannot be read.
        """
        given = self.number(DRAFT)
        steps = self.number(("--speculative-num-steps",))
        if steps and self.flags.get("--speculative-eagle-topk") == "1":
            return steps + 1  # one chain: SGLang makes it so, whatever else is given
        text = self.flags.get("--speculative-config")
        if given is not None or text is None:
            return given
        try:
            drafts = json.loads(text)["num_speculative_tokens"]
        except (json.JSONDecodeError, KeyError, TypeError, RecursionError):
            return None
        if isinstance(drafts, bool) or not isinstance(drafts, int):
            raise CollbenchError(
                f"--server-args: num_speculative_tokens {str(drafts)[:40]!r} is not a number"
            )
        return drafts + 1


def parse_server_args(text: str) -> ServerArgs:
    """Read a command line as a shell would, without running anything.

    Raises:
        CollbenchError: quotes do not close, or an option belongs to a family not modelled.

    >>> parse_server_args("A=1 vllm serve m --tensor-parallel-size=4 --enforce-eager").flags
    {'--tensor-parallel-size': '4', '--enforce-eager': None}
    """
    try:
        words = shlex.split(text, comments=False)
    except ValueError as error:
        raise CollbenchError(f"--server-args: {error}", fix="close the quotes") from error
    env: dict[str, str] = {}
    while words and re.match(r"[A-Za-z_]\w*=", words[0]):
        name, _, value = words.pop(0).partition("=")
        env[name] = value
    flags: dict[str, str | None] = {}
    for word, after in itertools.zip_longest(words, words[1:], fillvalue=""):
        if not re.match(r"--?[A-Za-z]", word):
            continue
        name, has_value, value = word.partition("=")
        if not has_value and after and not re.match(r"--?[A-Za-z]", after):
            has_value, value = "=", after
        flags[name.replace("_", "-")] = value if has_value else None
    joined = " ".join(words)
    server: Server | None = None
    if "sglang" in joined:
        server = "sglang"
    elif "vllm" in joined:
        server = "vllm"
    refuse(flags)
    return ServerArgs(flags=flags, env=env, server=server)


def refuse(flags: Mapping[str, str | None]) -> None:
    """Refuse by name what the model of a step does not hold for.

    Raises:
        CollbenchError: such an option is there.
    """
    found = [(name, REFUSED[name]) for name in flags if name in REFUSED]
    for name, (family, unused) in REFUSED_VALUES.items():
        if name in flags and (flags[name] or "") not in unused:
            found.append((f"{name} {flags[name] or ''}".strip(), family))
    for name, value in flags.items():
        plain = f"{name} {value or ''}".replace("-", "_" if name.count(".") else "-")
        if name.split(".")[0].startswith(COMPILATION) and PASSES.search(plain):
            found.append((name, "sequence parallelism"))
    ranks = flags.get("--data-parallel-size") or flags.get("-dp")
    if "--enable-expert-parallel" in flags and ranks not in (None, "1"):
        found.append(("--enable-expert-parallel with data parallelism", "expert all-to-all"))
    if found:
        raise CollbenchError(
            f"--server-args: {found[0][0][:80]}: {found[0][1]} is not modelled: the step has other "
            "collectives, in other groups",
            fix="give the server's NCCL log instead (NCCL_DEBUG=INFO "
            "NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING)",
        )
