"""Progress of long work: a bar in a terminal or notebook, plain lines or nothing elsewhere."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from count01_lens.common.text import plural

Item = TypeVar("Item")


class Progress:
    """Shows how far training is.

    Args:
        total: epochs in all.
        done: epochs already done by an earlier run.
        n_models: how many models train together.
        show: True, False, or None to show it only where somebody is likely to look on.
    """

    def __init__(self, total: int, done: int, n_models: int, show: bool | None):
        self.total, self.done = total, done
        self.models = plural(n_models, "model")
        interactive = sys.stderr.isatty() or in_notebook()
        self.show_bar = interactive and show is not False
        self.show_lines = not interactive and show is True
        self._bar: Any = None

    def __enter__(self) -> "Progress":
        if self.show_bar:
            from tqdm.auto import tqdm

            self._bar = tqdm(
                total=self.total,
                initial=self.done,
                unit="epoch",
                desc=f"training {self.models}",
                dynamic_ncols=True,
            )
        elif self.show_lines and self.done:
            print(f"continuing after epoch {self.done}", file=sys.stderr, flush=True)
        return self

    def advance(self, row: Mapping[str, Any]) -> None:
        """Show one more epoch, by its line of history."""
        self.done += 1
        loss = float(np.mean(row["loss"]))
        accuracy = float(np.mean(row["validation_accuracy"]))
        if self._bar is not None:
            self._bar.set_postfix_str(
                f"loss {loss:.4f}, validation accuracy {accuracy:.4f}", refresh=False
            )
            self._bar.update()
        elif self.show_lines and (
            self.done % max(1, self.total // 10) == 0 or self.done == self.total
        ):
            print(
                f"epoch {self.done}/{self.total}  {self.models}  loss {loss:.4f}  "
                f"validation accuracy {accuracy:.4f}",
                file=sys.stderr,
                flush=True,
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()


def track(items: Iterable[Item], total: int, label: str, show: bool | None) -> Iterator[Item]:
    """Yield items behind a progress bar, in a terminal or notebook, unless `show` is False."""
    if show is False or not (sys.stderr.isatty() or in_notebook()):
        yield from items
        return
    from tqdm.auto import tqdm

    yield from tqdm(items, total=total, desc=label, leave=False, dynamic_ncols=True)


def in_notebook() -> bool:
    """Whether this runs in a notebook, where progress bars are welcome."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and "IPKernelApp" in shell.config
