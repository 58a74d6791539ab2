"""What several tests share: small data sets and models, commands, pages, processes."""

import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from html import unescape
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pandas as pd
import torch

from count01_lens.common.storage import sha256
from count01_lens.heads.head_data import AskedHeads, HeadData
from count01_lens.models.config import ModelConfig
from count01_lens.models.lens import is_own_hook
from count01_lens.tasks.counting_task import CountingTask
from count01_lens.tasks.dataset import CountSpec, SplitSpec, make_splits
from count01_lens.training.recipe import TrainConfig
from count01_lens.views.circuits_page import _bundle
from experiments import report as reproduction
from tests.lens_versions import made

TINY = make_splits(
    0,
    train=SplitSpec(size=300, zeros_and_ones=(0, 6), twos=(0, 4)),
    test=SplitSpec(size=80, zeros_and_ones=(0, 7), twos=(0, 5)),
)


def two_layers(normalization="LN"):
    return deep_model(normalization_type=normalization)


def deep_model(**fields):
    """Two layers with MLPs, in float64, and any fields of the config besides."""
    config = dict(
        d_model=12, d_head=4, n_heads=3, n_layers=2, n_ctx=64, d_vocab=8, d_mlp=20, act_fn="gelu",
        normalization_type=None, seed=1, device="cpu", dtype=torch.float64,
    )  # fmt: skip
    model = made(**config | fields)
    generator = torch.Generator().manual_seed(2)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
        parameter.data += 0.3 * noise
    return model


def random_data(rng, *, n=40, n_heads=3, choices=2, **options):
    """Logits that stand for nothing, of an answer and of an end."""
    ties = rng.random(n) < 0.3
    asked = {
        "answer": AskedHeads(
            heads=rng.standard_normal((n, n_heads, choices)),
            rest=rng.standard_normal((n, choices)),
            answers=rng.integers(0, choices, n),
            subsets={"ties": ties, "others": ~ties},
        ),
        "end": AskedHeads(
            heads=rng.standard_normal((n, n_heads, 4)),
            rest=rng.standard_normal((n, 4)),
            answers=np.full(n, 2),
        ),
    }
    return HeadData(
        train_outputs=rng.standard_normal((2 * choices, n_heads, 1)),
        train_answers=np.tile(np.arange(choices), 2),
        test_outputs=rng.standard_normal((n, n_heads, 1)),
        asked=asked,
        **options,
    )


def hooks_left(model) -> int:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    return sum(
        not is_own_hook(hook)
        for module in model.modules()
        for kind in kinds
        for hook in getattr(module, kind).values()
    )


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def is_gone(pid: int) -> bool:
    """Whether a process has ended, be it that nobody has asked for its exit code yet."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


LIMIT, SIZE = 100_000, "400k"


@contextmanager
def small_disk(directory: Path):
    """Yield how to make it larger, or None if mounting is not allowed here."""
    directory.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(directory)],
        capture_output=True,
    )
    if mounted.returncode != 0:
        yield None
        return
    try:
        yield lambda: subprocess.run(
            ["mount", "-o", "remount,size=100m", str(directory)], check=True
        )
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def as_count01() -> CountingTask:
    """Count01, written as any other counting task is."""
    return CountingTask(
        symbols="012",
        answers="45",
        rule="n1 > n0",
        train=CountSpec(size=7000, counts=(0, 100)),
        validation=CountSpec(size=1500, counts={"0": (101, 150), "1": (101, 150), "2": (0, 150)}),
        test=CountSpec(size=1500, counts={"0": (151, 200), "1": (151, 200), "2": (0, 200)}),
    )


PROGRAM = Path(sys.executable).parent / "count01-lens"


def run(*arguments, **options):
    return subprocess.run(
        [str(PROGRAM), *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"},
        **options,
    )


SPLITS = make_splits(
    0,
    train=SplitSpec(size=150, zeros_and_ones=(0, 20), twos=(0, 20)),
    validation=SplitSpec(size=60, zeros_and_ones=(21, 30), twos=(0, 30)),
    test=SplitSpec(size=60, zeros_and_ones=(31, 40), twos=(0, 40)),
)


SMALL = ModelConfig(d_embed=6, n_heads=3)


# Models of every kind that can be trained.
SHAPES = [
    ModelConfig(d_embed=8, n_heads=4),
    ModelConfig(d_embed=8, n_heads=2, layer_norm=False),
    ModelConfig(d_embed=6, n_heads=3, qkv_bias=True, scale_scores=True),
    ModelConfig(d_embed=3, n_heads=5, d_head=2, layer_norm=False, qkv_bias=True),
    ModelConfig(d_embed=8, n_heads=2, output="residual"),
    ModelConfig(d_embed=8, n_heads=2, output="residual", layer_norm=False, qkv_bias=True),
]


def with_biases(rows: torch.Tensor) -> torch.Tensor:
    """Fresh parameters have biases of zero, which would hide a lost one."""
    return rows + 0.1 * torch.arange(rows.numel()).reshape(rows.shape).double().cos()


QUICK = TrainConfig(model=SMALL, epochs=3, batch_size=32, precision="float64")


# What every page forbids: any request at all.
NO_REQUESTS = """\
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:">"""


EVIL = "</style></script><img src=x onerror=alert(1)>&\"'"


class Outline(HTMLParser):
    """What a page is made of, as those see it who do not look at it."""

    def __init__(self, page):
        super().__init__()
        self.page = page.replace(_bundle(), "")
        self.elements = []
        self.feed(self.page)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def all(self, *tags):
        return [attributes for tag, attributes in self.elements if tag in tags]

    def assert_good(self):
        """Everything that holds for every report."""
        levels = [int(tag[1]) for tag, _ in self.elements if re.fullmatch(r"h\d", tag)]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
        ids = [attributes["id"] for _, attributes in self.elements if "id" in attributes]
        assert len(ids) == len(set(ids))
        for link in self.all("a"):
            assert link["href"].startswith(("#", "data:"))
            assert not link["href"].startswith("#") or link["href"][1:] in ids
            assert ("download" in link) == link["href"].startswith("data:")
        for image in self.all("img"):
            assert len(image["alt"]) > 10
            assert image["src"].startswith("data:image/")
        assert all(cell.get("scope") in ("row", "col") for cell in self.all("th"))
        assert len(self.all("caption")) == len(self.all("table"))
        for landmark in ("header", "nav", "main", "footer"):
            assert len(self.all(landmark)) == 1
        assert self.all("nav")[0]["aria-label"]
        assert self.all("html") == [{"lang": "en"}]
        assert self.all("a")[0] == {"class": "skip", "href": "#main"}
        assert "main" in ids
        assert NO_REQUESTS in self.page
        assert not re.search(r"https?://|@import|url\(", self.page)
        for script in self.all("script", "link", "iframe"):
            assert set(script) <= {"type", "class"}, "nothing is loaded"


SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="72pt" height="36pt"></svg>'


def csv_of(page, name):
    """A table that a page offers to save."""
    address = re.search(rf'href="data:text/csv;charset=utf-8,([^"]*)" download="{name}"', page)[1]
    return pd.read_csv(StringIO(unquote(unescape(address))))


def fake_results(directory, *, rows=("D1", "F3", "E2", "C1", "T1"), image=(SVG, b"png")):
    """What an experiment suite leaves; the claims' file is beside it."""
    directory.mkdir()
    rules = directory.parent / "claims.py"
    rules.write_text("# rules\n")
    common = {"size": "full", "claims_sha256": sha256(rules.read_bytes())}
    for name in rows:
        (directory / name).mkdir()
        content = {
            **common,
            "row": name,
            "name": "module",
            "title": f"Title of {name} {EVIL}",
            "paper": f"Paper on {name} {EVIL}",
            "shows": f"Shown by {name} {EVIL}",
            "seeds": [100, 101, 102, 7],
            "recipe": {"epochs": 3 if name == "E2" else 100},
            "versions": {"torch": "2.13"},
            "seconds": 1.5,
            "numbers": {
                "share": {"mean": 0.25, "low": 0.2, "high": 0.3, "n": 4, "values": [0.25] * 4},
                "unknown": {"mean": None, "low": None, "high": None, "n": 0, "values": []},
                "count": 65535,
                "sizes": [7000, 1500],
                EVIL: EVIL,
            },
            "tables": ["small.csv", "large.csv"],
            "figures": [
                {"file": "a.svg", "png": "a.png", "alt": f"Alternative {EVIL}", "caption": EVIL}
            ],
        }
        (directory / name / "numbers.json").write_text(json.dumps(content))
        for file, data in zip(("a.svg", "a.png"), image, strict=True):
            (directory / name / file).write_bytes(data)
        (directory / name / "small.csv").write_text(f'd,share\n32,0.740000001\n1,"{EVIL[:9]}"\n')
        (directory / name / "large.csv").write_text("x\n" + "0.123456\n" * 30_000)
    verdicts = ["reproduced", "partly", "not reproduced", "not measured"]
    claims = [
        {
            "id": f"{row}.claim_{number}",
            "row": row,
            "statement": f"Statement {number} of {row} {EVIL}",
            "paper": "about 50 %",
            "measure": "share of heads",
            "value": None if number == 3 else 0.25,
            "low": 0.2 if number == 1 else None,
            "high": 0.3 if number == 1 else None,
            "n": 4 if number == 1 else None,
            "reproduced": [0.2, 0.6],
            "partly": [None, 0.7],
            "verdict": verdict,
        }
        for row in ("D1", "F3", "E2", "C1", "F8")
        for number, verdict in enumerate(verdicts)
    ]
    suite = {
        **common,
        "versions": {"torch": "2.13"},
        "seconds": 5400.0,
        "machine": {"cores": 2},
        "failed": {"F8": "Traceback\n  somewhere\nTimeoutError: took too long"},
    }
    (directory / "claims.json").write_text(json.dumps(claims))
    (directory / "suite.json").write_text(json.dumps(suite))
    return directory


def written(results, path):
    """The page of a reproduction that `fake_results` left."""
    rules = results.parent / "claims.py"
    assert reproduction.write_report(results, path, claims_file=rules) == path
    return path.read_text()
