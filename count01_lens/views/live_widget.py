"""`train(live=True)`: a training in a notebook while it runs, as a widget.

While a cell runs, a notebook hears nothing of its pages, but they hear of it: what is new is sent
as messages. Pages that are opened later have the traits, which are set anew whenever there is twice
as much to tell, and at the end.
"""

import time
from typing import Any

import anywidget
import traitlets

from count01_lens.training.live import LiveTraining
from count01_lens.views.live_module import live_module, live_style

_PAUSE = 0.5  # seconds between two messages: more often, nobody can read it


class LiveWidget(anywidget.AnyWidget):  # type: ignore[misc]
    """Shows a training in a notebook; `train(live=True)` makes one.

    Attributes:
        about: what is trained.
        data: all that is known of it, as of when it was set last.
    """

    _esm = live_module()
    _css = live_style()
    about = traitlets.Dict().tag(sync=True)
    data = traitlets.Dict().tag(sync=True)

    def __init__(self) -> None:
        super().__init__()
        self.training: LiveTraining | None = None
        self._sent, self._stored, self._last = (0, 0), 0, 0.0

    def __repr__(self) -> str:
        training = self.training
        if training is None:
            return "LiveWidget(nothing is trained yet)"
        return f"LiveWidget({training.state}, epoch {training.epoch} of {training.epochs})"

    def follow(self, training: LiveTraining) -> None:
        """Appear below the cell."""
        from IPython.display import display

        self.training, self.about, self._sent, self._stored = training, training.about, (0, 0), 0
        self._store()
        display(self)  # type: ignore[no-untyped-call]

    def changed(self) -> None:
        """Send what is new, unless something was sent just now."""
        training = self.training
        if training is None:
            return
        now = time.monotonic()
        if not training.ended and now - self._last < _PAUSE:
            return
        self._last = now
        if training.ended or len(training.lines) >= 2 * self._stored:
            self._store()
        else:
            self._tell(training.news(*self._sent))

    def _store(self) -> None:
        assert self.training is not None
        told = self.training.news()
        self._stored = len(told["lines"])
        self.data = told
        self._note(told)

    def _tell(self, told: dict[str, Any]) -> None:
        self.send(told)
        self._note(told)

    def _note(self, told: dict[str, Any]) -> None:
        lines, heads = told["from"]
        self._sent = lines + len(told["lines"]), heads + len(told["heads"])
