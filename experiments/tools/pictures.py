"""Draw the pictures of the README that follow from the bundled models.

python -m experiments.tools.pictures
"""

from pathlib import Path

import count01_lens as cl
from count01_lens.common.storage import write_atomically
from count01_lens.views.figures import as_bytes
from count01_lens.views.plots import plot_cooperation

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def main() -> None:
    """Draw what heads of the paper's recipe are worth together."""
    analysis = cl.analyze_heads(cl.example_model("paper")).with_groups()
    drawn = as_bytes(plot_cooperation(analysis, "l_acc"), "svg")
    write_atomically(IMAGES / "cooperation.svg", drawn)


if __name__ == "__main__":
    main()
