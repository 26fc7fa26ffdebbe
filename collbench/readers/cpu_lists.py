"""CPU lists as the kernel writes them: ``0-31,64-95``, and masks."""

from __future__ import annotations

MAX_CPU = 1 << 14


def cpus_of(text: str) -> frozenset[int] | None:
    """Return the CPUs of a list, or None where it is none.

    >>> sorted(cpus_of("0-2,8"))
    [0, 1, 2, 8]
    """
    found: set[int] = set()
    for part in text.strip().split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            return None
        first, last = int(low), int(high) if dash else int(low)
        if not first <= last < MAX_CPU:
            return None
        found.update(range(first, last + 1))
    return frozenset(found)


def list_of_mask(mask: str) -> str | None:
    """Return the list of a hexadecimal mask (``ff,00000000``).

    >>> list_of_mask("f0f")
    '0-3,8-11'
    """
    try:
        bits = int(mask.replace(",", ""), 16)
    except ValueError:
        return None
    if bits.bit_length() > MAX_CPU:
        return None
    runs: list[list[int]] = []
    for cpu in range(bits.bit_length()):
        if bits >> cpu & 1:
            if runs and runs[-1][1] == cpu - 1:
                runs[-1][1] = cpu
            else:
                runs.append([cpu, cpu])
    return ",".join(f"{a}-{b}" if a < b else f"{a}" for a, b in runs)
