"""Whether something can fit into memory at all, asked before it is begun."""

import os


def check_memory(what: str, n_bytes: int, remedy: str) -> None:
    """Raise if something needs more bytes than the machine has, used or not."""
    there = memory_of_machine()
    if there is not None and n_bytes > there:
        raise ValueError(
            f"memory: expected at most {gigabytes(there)}, which this machine has, got {what}, "
            f"which need at least {gigabytes(n_bytes)}; {remedy}"
        )


def memory_of_machine() -> int | None:
    """Return how many bytes of memory there are, where the system tells."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def gigabytes(n_bytes: int) -> str:
    """Write a number of bytes as people do: '23.5 GB'."""
    return f"{n_bytes / 1e9:,.3g} GB" if n_bytes < 1e12 else f"{n_bytes / 1e9:,.0f} GB"
