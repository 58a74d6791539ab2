"""Shared set-up: shapes are checked at run time, and with CI=true a skipped test is a failure."""

import os
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

import tests.shapes  # noqa: F401  (the hook below looks it up by name)

pytest_plugins = ["tests.processes", "tests.random_order"]

# Every jaxtyping annotation of the package is checked on every call that the tests make.
install_import_hook("count01_lens", "tests.shapes.check_shapes")

settings.register_profile(
    "default", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    from count01_lens.models.lens import has_bridges

    report = yield
    if report.skipped and os.environ.get("CI") == "true" and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        allowed = ["cannot run in CI:", *(["TransformerLens 4:"] if has_bridges() else [])]
        if not any(words in reason for words in allowed):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} was skipped, which CI does not allow: {reason}"
    return report
