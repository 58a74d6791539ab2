"""Runs of the explorer's engine in node and in Chromium, on the same cases."""

import functools
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from count01_lens.views.explorer_module import ENGINE, joined
from tests.browsers import chromium_page

HERE = Path(__file__).parent
NODE = next(filter(None, map(shutil.which, ("node", "nodejs"))), None)


@functools.cache
def engine_with_cases() -> str:
    return joined(ENGINE) + (HERE / "engine_cases.js").read_text()


def in_node(cases: list[dict[str, Any]], folder: Path, computed: str = "answered") -> list[Any]:
    """What node computes; cases go through files, because pipes are small."""
    assert NODE is not None, "install Debian's `nodejs` to run this"
    script, given = folder / "run.mjs", folder / "cases.json"
    given.write_text(json.dumps(cases))
    script.write_text(
        engine_with_cases() + '\nimport { readFileSync } from "node:fs";'
        "\nconst cases = JSON.parse(readFileSync(process.argv[2]));"
        f"\nconsole.log(JSON.stringify(cases.map({computed})));"
    )
    found = subprocess.run([NODE, script, given], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


def in_chromium(cases: list[dict[str, Any]]) -> list[Any]:
    """What a real browser computes."""
    with chromium_page() as page:
        page.set_content("<title>engine</title>")
        code = (
            "cases => {" + engine_with_cases() + "\nreturn JSON.stringify(cases.map(answered)); }"
        )
        found = json.loads(page.evaluate(code, cases))
        assert page.errors == []
        return found
