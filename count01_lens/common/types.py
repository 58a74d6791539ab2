"""Types that the whole library uses, under short names."""

from typing import TYPE_CHECKING, Any

import numpy as np

Array = np.ndarray

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer as HookedTransformer
else:
    # The name is for annotations only: to import the class takes five seconds.
    HookedTransformer = Any
