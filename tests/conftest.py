"""Shared set-up: shapes are checked at run time, and with CI=true a skipped test is a failure."""

import os
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

import tests.shapes  # noqa: F401  (the hook below looks it up by name)

# Every jaxtyping annotation of the package is checked on every call that the tests make.
install_import_hook("count01_lens", "tests.shapes.check_shapes")

from count01_lens.heads.analysis import HeadAnalysis  # noqa: E402  (after the hook)
from tests.label_stand_in import labels  # noqa: E402

if not hasattr(HeadAnalysis, "labels"):
    HeadAnalysis.labels = labels

settings.register_profile(
    "default", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    if report.skipped and os.environ.get("CI") == "true" and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if "cannot run in CI:" not in reason:
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} was skipped, which CI does not allow: {reason}"
    return report
