"""The widget without a browser: what it tells the page, and that the module is one."""

import json
import subprocess
import sys
import types

import pytest

import count01_lens as cl
from count01_lens.views import live_widget
from count01_lens.views.explorer_module import module_file
from count01_lens.views.live_module import _OWN, _SHARED, live_module, live_page
from count01_lens.views.live_widget import LiveWidget
from tests.helpers import QUICK, SPLITS
from tests.views.explorer.engines import NODE


@pytest.fixture
def shown(monkeypatch):
    """What is displayed, as in a notebook."""
    found = []
    monkeypatch.setattr("IPython.display.display", found.append)
    return found


@pytest.fixture
def messages(monkeypatch):
    found = []
    monkeypatch.setattr(LiveWidget, "send", lambda _, content: found.append(content))
    return found


def test_it_tells_all_of_a_training_in_messages_and_traits(shown, messages, monkeypatch):
    monkeypatch.setattr(live_widget, "_PAUSE", 0.0)
    widget = LiveWidget()
    result = cl.train(
        QUICK.changed(epochs=9), seeds=[0, 1], splits=SPLITS, progress=False, live=widget
    )
    assert shown == [widget]
    assert widget.about["models"] == ["seed 0", "seed 1"]
    state = json.loads(json.dumps(widget.get_state()["data"], allow_nan=False))
    assert [line["epoch"] for line in state["lines"]] == list(range(10))
    assert state["status"]["state"] == "finished"
    # 1, 2, 4 and 8 lines and the end are in traits, what is between in messages.
    assert [line["epoch"] for told in messages for line in told["lines"]] == [2, 4, 5, 6, 8, 9]
    assert repr(widget) == "LiveWidget(finished, epoch 9 of 9)"
    assert len(result.models) == 2


def test_it_does_not_tell_more_often_than_anybody_can_read(shown, messages):
    cl.train(QUICK.changed(epochs=9), splits=SPLITS, progress=False, live=LiveWidget())
    assert len(messages) <= 3


def test_live_true_shows_it_in_a_notebook_in_the_place_of_the_bar(shown, monkeypatch, capsys):
    config = {"IPKernelApp": {}}
    shell = types.SimpleNamespace(config=config)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr(LiveWidget, "follow", lambda self, training: shown.append(self))
    cl.train(QUICK, splits=SPLITS, live=True)
    (widget,) = shown
    assert isinstance(widget, LiveWidget)
    assert capsys.readouterr().err == ""


def test_the_module_is_one_that_node_reads(tmp_path):
    module = live_module()
    assert module.count("export default { render }") == 1
    assert LiveWidget._esm == module
    (tmp_path / "live.mjs").write_text(module)
    subprocess.run([NODE, "--check", tmp_path / "live.mjs"], check=True)


def test_no_part_writes_markup():
    files = [module_file(name, "live") for name in _OWN]
    files += [module_file(name, "explorer") for name in _SHARED]
    for text in files:
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in text
    assert live_page().count("<script") == 1
