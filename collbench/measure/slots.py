"""A rotating pool of messages of one collective: its calls, its test data, its check."""

from __future__ import annotations

from collections.abc import Sequence

from collbench.backends import COLLECTIVES, ROOT, Backend, Call, Span, Unsupported
from collbench.backends.pattern import ITEM_BYTES, Pattern, count_wrong, largest_value

ALIGN = 16
"""Bytes to which the slots of a pool are aligned: libraries copy in words of this size."""
_POISON = b"\xff"
"""Fills what a collective has to write: NaN in every float, -1 in every integer."""


def default_chain(size_bytes: int) -> int:
    """Return the calls of one timed chain: enough for a window long against its events."""
    if size_bytes <= 64 << 10:
        return 100
    if size_bytes <= 8 << 20:
        return 50 if size_bytes <= 1 << 20 else 20
    return 5


class Slots:
    """Messages of one (collective, size, dtype) in one block of memory, used in turn.

    ``calls[i]`` works on slot `i`, in place. Fewer slots than `pool_bytes` allows are made where
    `uses` calls never reach them.

    Raises:
        Unsupported: dtype, size or collective cannot be done with this number of ranks; every rank
            raises alike.
    """

    def __init__(
        self,
        backend: Backend,
        collective: str,
        size_bytes: int,
        dtype: str,
        *,
        pool_bytes: int,
        uses: int,
    ) -> None:
        self.backend = backend
        self.collective = collective
        self.size_bytes = size_bytes
        self.dtype = dtype
        self._validate()
        item = ITEM_BYTES[dtype]
        self.count = size_bytes // item
        self._stride = -(-size_bytes // ALIGN) * ALIGN
        self.slots = max(1, min(pool_bytes // self._stride, uses))
        self._block = self.slots * self._stride
        two = collective == "send_recv"
        self._memory = backend.allocate(self._block * (2 if two else 1))
        self._recv_base = self._block if two else 0
        self.calls: list[Call] = [
            backend.prepare(collective, dtype, self._send(slot), self._recv(slot))
            for slot in range(self.slots)
        ]
        self._pattern = Pattern(dtype, backend.nranks)
        self._image: bytearray | None = None
        self._expected: list[tuple[int, bytearray]] = []

    def _validate(self) -> None:
        nranks, dtype = self.backend.nranks, self.dtype
        if self.collective not in COLLECTIVES:
            raise Unsupported(f"no collective {self.collective!r}: {', '.join(COLLECTIVES)}")
        if dtype not in self.backend.dtypes:
            known = ", ".join(sorted(self.backend.dtypes))
            raise Unsupported(f"{self.backend.name} has no dtype {dtype}: {known}")
        unit = ITEM_BYTES[dtype] * (nranks if self.split else 1)
        if self.size_bytes < unit or self.size_bytes % unit:
            raise Unsupported(
                f"{self.collective} of {self.size_bytes} bytes: not a multiple of {unit}"
                f" ({dtype}, {nranks} ranks)"
            )
        if largest_value(dtype, nranks) == 0:
            raise Unsupported(f"{nranks} ranks: a sum in {dtype} could not be checked")

    @property
    def split(self) -> bool:
        """Whether each rank owns a part of the message."""
        return self.collective in ("all_gather", "reduce_scatter")

    @property
    def input_count(self) -> int:
        """Elements that this rank feeds into one call."""
        return self.count // self.backend.nranks if self.collective == "all_gather" else self.count

    def input_span(self, slot: int) -> Span:
        """Return where this rank's input of a slot lies."""
        return self._send(slot)

    def _send(self, slot: int) -> Span:
        base = slot * self._stride
        if self.collective == "all_gather":
            return self._chunk(base, self.backend.rank)
        return Span(self._memory, base, self.count)

    def _recv(self, slot: int) -> Span:
        base = self._recv_base + slot * self._stride
        if self.collective == "reduce_scatter":
            own = self.backend.reduce_scatter_at == "own"
            return self._chunk(base, self.backend.rank if own else 0)
        return Span(self._memory, base, self.count)

    def _chunk(self, base: int, index: int) -> Span:
        count = self.count // self.backend.nranks
        return Span(self._memory, base + index * count * ITEM_BYTES[self.dtype], count)

    def input_bytes(self, block: int) -> bytearray:
        """Return this rank's test data of one block of the pattern; slot `i` holds block `i`."""
        return self._input_of(block, self.backend.rank)

    def _input_of(self, block: int, rank: int) -> bytearray:
        start = block * self.count
        if self.collective == "all_gather":
            start += rank * self.input_count
        return self._pattern.of(rank, start, self.input_count)

    def _result(self, block: int) -> bytearray | None:
        """Return what a call on a block leaves in its slot; None where this rank gets nothing."""
        start, nranks, rank = block * self.count, self.backend.nranks, self.backend.rank
        if self.collective == "all_gather":
            return bytearray().join(self._input_of(block, other) for other in range(nranks))
        if self.collective == "reduce_scatter":
            count = self.count // nranks
            return self._pattern.total(start + rank * count, count)
        if self.collective == "broadcast":
            return self._pattern.of(ROOT, start, self.count)
        if self.collective == "send_recv":
            return self._pattern.of((rank - 1) % nranks, start, self.count)
        if self.collective == "reduce" and rank != ROOT:
            return None
        return self._pattern.total(start, self.count)

    def fill(self) -> None:
        """Write the test data of every slot, and poison where a result has to appear."""
        if self._image is None:
            self._image = self._first_image()
            for slot in range(self.slots):
                result = self._result(slot)
                if result is not None:
                    self._expected.append((self._recv(slot).offset, result))
        self.backend.write(self._memory, self._image)

    def _first_image(self) -> bytearray:
        length = self._block + self._recv_base
        sends = self.collective != "broadcast" or self.backend.rank == ROOT
        parts = [
            (self._send(slot).offset, self.input_bytes(slot))
            for slot in range(self.slots if sends else 0)
        ]
        if parts and len(parts[0][1]) == length:
            return parts[0][1]  # all of it, and 64 MiB are not copied for nothing
        image = bytearray(_POISON) * length
        for at, part in parts:
            image[at : at + len(part)] = part
        return image

    def clear(self) -> None:
        """Write zeros: sums in place then stay zero however often the calls are repeated."""
        self.backend.clear(self._memory)

    def wrong(self) -> int:
        """Return how many elements of this rank's results are not what one call after `fill` gives.

        Only this rank's own results count.
        """
        return self._differing(self._expected)

    def wrong_against(self, blocks: Sequence[int]) -> int:
        """As `wrong`, where slot `i` was last called on block ``blocks[i]`` of the pattern."""
        expected: list[tuple[int, bytearray]] = []
        for slot, block in enumerate(blocks):
            result = self._result(block)
            if result is not None:
                expected.append((self._recv(slot).offset, result))
        return self._differing(expected)

    def _differing(self, expected: list[tuple[int, bytearray]]) -> int:
        got = memoryview(self.backend.read(self._memory, self._block + self._recv_base))
        item = ITEM_BYTES[self.dtype]
        return sum(count_wrong(got[at : at + len(want)], want, item) for at, want in expected)

    def run_once(self) -> None:
        """Run the call of every slot once."""
        for call in self.calls:
            call()

    def check(self) -> int:
        """Fill, run every slot's call once, and return the wrong elements of this rank."""
        self.fill()
        self.run_once()
        return self.wrong()
