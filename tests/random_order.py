"""Tests in random order: `pytest --shuffle 7`, so that none lives on what another one leaves.

Files are shuffled, and tests within each; what the tests of a file share is then made once as before.
"""

import random

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run tests in random order")


def pytest_report_header(config: pytest.Config) -> str | None:
    seed = config.getoption("shuffle")
    return None if seed is None else f"in random order: --shuffle {seed}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("shuffle")
    if seed is None:
        return
    rng = random.Random(seed)
    files = sorted({item.path for item in items})
    rng.shuffle(files)
    rng.shuffle(items)
    items.sort(key=lambda item: files.index(item.path))
