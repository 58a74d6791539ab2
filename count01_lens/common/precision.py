"""Which precision results are computed in."""

import torch


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype to compute in: half precision has too few digits to add up many tokens."""
    return torch.promote_types(dtype, torch.float32)
