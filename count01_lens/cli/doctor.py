"""The command that says what works on this machine: what is quick to find out comes first."""

import os
import platform
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import typer

from count01_lens.cli.screen import AsJson, say, say_json
from count01_lens.common.columns import screen_width

_FRONT_ENDS = {"jupyterlab": "JupyterLab", "notebook": "Jupyter Notebook", "marimo": "marimo"}
_SAID = {"ok": "ok", "optional": "not here", "broken": "BROKEN"}
_GB = 1_000_000_000


@dataclass(frozen=True)
class Finding:
    """What one look found: `optional` is what is not there and need not be."""

    name: str
    state: Literal["ok", "optional", "broken"]
    found: str


def doctor(as_json: AsJson = False) -> None:
    """Say what works on this machine: versions, threads, disk, notebooks, browser, models.

    Exits with 1 if anything is broken that is needed. Nothing is installed or sent anywhere.
    """
    from count01_lens.common.versions import own_version

    findings = []
    if not as_json:
        say(f"count01-lens {own_version()} on {platform.system()} {platform.machine()}")
    for look, takes in _LOOKS.items():
        if takes:
            say(takes, err=True)
        for finding in _seen(look):
            findings.append(finding)
            if not as_json:
                _show(finding)
    broken = [finding.name for finding in findings if finding.state == "broken"]
    if as_json:
        about = {"version": own_version(), "works": not broken}
        say_json(about | {"findings": [asdict(finding) for finding in findings]})
    elif broken:
        say("", f"Broken: {', '.join(broken)}. Fix this first, as described above.")
    else:
        say("", "All that is needed works here.")
    if broken:
        raise typer.Exit(1)


def _seen(look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Look; whatever goes wrong is what was found."""
    try:
        yield from look()
    except Exception as error:
        name = look.__name__.strip("_").replace("_", " ")
        yield Finding(name, "broken", f"{type(error).__name__}: {error}")


def _show(finding: Finding) -> None:
    lines = textwrap.wrap(finding.found, max(20, screen_width() - 28), break_long_words=False)
    for number, line in enumerate(lines):
        state, name = (_SAID[finding.state], finding.name) if number == 0 else ("", "")
        typer.echo(f"{state:<9} {name:<17} {line}".rstrip())


def _python() -> Iterator[Finding]:
    ok = sys.version_info >= (3, 11)
    text = f"{platform.python_version()}, {sys.executable}"
    yield Finding("Python", "ok" if ok else "broken", text if ok else f"{text}; 3.11 is needed")


def _libraries() -> Iterator[Finding]:
    from importlib.metadata import PackageNotFoundError, requires, version

    try:
        needed = [line for line in requires("count01-lens") or [] if "extra ==" not in line]
    except PackageNotFoundError:
        text = "not installed as a package, but run from its files: pip install it"
        yield Finding("installation", "optional", text)
        return
    from packaging.requirements import Requirement

    wrong, found = [], {}
    for requirement in map(Requirement, needed):
        try:
            found[requirement.name] = version(requirement.name)
        except PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing: pip install '{requirement}'")
            continue
        if not requirement.specifier.contains(found[requirement.name], prereleases=True):
            wrong.append(
                f"{requirement.name} {found[requirement.name]}, expected {requirement.specifier}: "
                f"pip install '{requirement}'"
            )
    shown = ", ".join(f"{name} {found[name]}" for name in ("torch", "numpy", "transformers")
                      if name in found)  # fmt: skip
    text = "; ".join(wrong) if wrong else f"{shown} and {len(found) - 3} more, all as needed"
    yield Finding("libraries", "broken" if wrong else "ok", text)
    number = found.get("transformer-lens")
    if number is not None:
        models = "TransformerBridges" if int(number.split(".")[0]) >= 4 else "HookedTransformers"
        yield Finding("TransformerLens", "ok", f"{number}: models are {models}")


def _cores() -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    limits = [f"{name}={os.environ[name]}" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
              if name in os.environ]  # fmt: skip
    text = f"{cores} for this process; sweep-models uses them all"
    yield Finding("cores", "ok", "; ".join([text, *limits]))


def _disk() -> Iterator[Finding]:
    for name, place in (("this directory", Path.cwd()), ("temporary files", tempfile.gettempdir())):
        try:
            with tempfile.TemporaryFile(dir=place) as file:
                file.write(b"0" * 1000)
        except OSError as error:
            state: Literal["optional", "broken"] = (
                "optional" if name == "this directory" else "broken"
            )
            yield Finding(name, state, f"{place} cannot be written ({error.strerror})")
        else:
            free = shutil.disk_usage(place).free / _GB
            yield Finding(name, "ok", f"{place} can be written, {free:,.1f} GB are free")


def _notebooks() -> Iterator[Finding]:
    from importlib.metadata import version

    here = [f"{name} {version(package)}" for package, name in _FRONT_ENDS.items()
            if find_spec(package) is not None]  # fmt: skip
    if here:
        yield Finding("notebooks", "ok", f"{', '.join(here)}: the explorer runs in cells")
        return
    text = "none beside this Python; for the explorer in cells: pip install jupyterlab"
    yield Finding("notebooks", "optional", text)


def _browser() -> Iterator[Finding]:
    import webbrowser

    try:
        name = getattr(webbrowser.get(), "name", "there is one")
        yield Finding("browser", "ok", f"{name}: opens reports and explorers, without internet")
    except webbrowser.Error:
        text = "none can be opened from here; pages are single files: copy them to a desktop"
        yield Finding("browser", "optional", text)


def _clusters() -> Iterator[Finding]:
    from importlib.metadata import version

    if find_spec("distributed") is not None:
        yield Finding("clusters", "ok", f"Dask {version('distributed')}: sweep-models --dask")
        return
    text = "for sweep-models --dask: pip install 'count01-lens[cluster]'"
    yield Finding("clusters", "optional", text)


def _torch() -> Iterator[Finding]:
    import torch

    text = f"{torch.get_num_threads()} of torch; models are run on the CPU"
    yield Finding("threads", "ok", text)


def _example() -> Iterator[Finding]:
    from count01_lens.common.text import percent
    from count01_lens.counts.verification import verify
    from count01_lens.models.checkpoints import example_file, open_checkpoint

    result = verify(open_checkpoint(example_file("accurate")), 10, progress=False)
    right = result.accuracy == 1
    share = percent(result.accuracy)
    text = f"loads; {share} of all sentences up to 10 of each token are right"
    yield Finding("example model", "ok" if right else "broken", text)


def _hooks() -> Iterator[Finding]:
    from count01_lens.models.checkpoints import example_model

    model = example_model()
    text = f"the example model runs as {type(model).__name__}"
    right = model.generate("011=", max_new_tokens=1, do_sample=False, verbose=False) == "011=4"
    yield Finding("running models", "ok" if right else "broken", text)


# What is said before a look that takes seconds.
_LOOKS = {
    _python: "",
    _libraries: "",
    _cores: "",
    _disk: "",
    _notebooks: "",
    _browser: "",
    _clusters: "",
    _torch: "importing torch, then the example model: some seconds …",
    _example: "",
    _hooks: "importing TransformerLens: several seconds …",
}
