"""Examples in docstrings run, and the pages of the docs know all of the library."""

import doctest
import pkgutil
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

import count01_lens as cl
from count01_lens.attention.sweeps import RatioSweep
from count01_lens.counts.verification import Verification
from count01_lens.heads.probe_fits import ManyFits

DOCS = Path(__file__).parents[2] / "docs"
MODULES = ["count01_lens"] + [
    module.name for module in pkgutil.walk_packages(cl.__path__, "count01_lens.")
]
FLAGS = doctest.NORMALIZE_WHITESPACE
KNOWN = {"cl": cl, "torch": torch, "np": np}


def examples_of(name: str) -> list[doctest.DocTest]:
    module = import_module(name)
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = finder.find(module, extraglobs=KNOWN)
    return [test for test in found if test.examples]


@pytest.mark.parametrize("name", [name for name in MODULES if examples_of(name)])
def test_examples_in_docstrings_print_what_they_say(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    reports = []
    for test in examples_of(name):
        runner.run(test, out=reports.append)
    assert runner.summarize(verbose=False).failed == 0, "\n".join(reports)


def test_what_people_call_first_has_an_example():
    first = {"make_splits", "build_model", "example_model", "train", "analyze_heads", "verify",
             "ablate_heads", "patch_attention", "head_outputs", "head_logits"}  # fmt: skip
    for name in first:
        assert ">>>" in getattr(cl, name).__doc__, name


def test_the_reference_has_every_public_name_once():
    page = (DOCS / "api.md").read_text()
    named = re.findall(r"^\.\. auto(?:function|class|exception|data):: (\w+)$", page, re.MULTILINE)
    assert sorted(named) == sorted(cl.__all__)


def test_what_the_reference_names_by_its_module_is_there():
    page = (DOCS / "api.md").read_text()
    named = re.findall(r"^\.\. auto\w+:: (count01_lens\.[\w.]+)$", page, re.MULTILINE)
    assert len(named) > 5
    for module, _, name in (each.rpartition(".") for each in named):
        assert hasattr(import_module(module), name), (module, name)


def test_the_notation_has_every_axis_of_the_public_classes():
    page = (DOCS / "notation.md").read_text()
    for shown in (cl.CountForm, cl.HeadAnalysis, Verification, RatioSweep, ManyFits):
        for annotation in map(str, shown.__annotations__.values()):
            for axes in re.findall(r'\[(?:Tensor|Array|ndarray), "([^"]*)"\]', annotation):
                for axis in axes.split():
                    axis = axis.lstrip("*").partition("=")[0]
                    assert axis.isdigit() or f"`{axis}`" in page, (shown, axis)


def test_every_command_has_its_help_on_the_page():
    page = (DOCS / "command_line.md").read_text()
    from count01_lens.cli import app

    for command in app.registered_commands:
        name = command.name or command.callback.__name__.replace("_", "-")
        assert f'["{name}"]' in page
