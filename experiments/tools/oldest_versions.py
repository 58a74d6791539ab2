"""Print the oldest versions of libraries that pyproject.toml allows, as constraints for pip.

python experiments/oldest_versions.py > oldest.txt && pip install --constraint oldest.txt .

torch is the one of constraints.txt: an older one may have no build for this machine. Some libraries
need neighbours of their own age, because they use what newer ones deprecate.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEIGHBOURS = ["pyparsing<3.3"]  # of matplotlib 3.9


def oldest_versions(pyproject: str, constraints: str) -> list[str]:
    """Turn `name>=version` of the library's own dependencies into `name==version`."""
    project, found = tomllib.loads(pyproject)["project"], []
    for requirement in [*project["dependencies"], *project["optional-dependencies"]["cluster"]]:
        name, version = re.match(r"([\w.-]+)>=([\w.]+)", requirement).groups()  # type: ignore[union-attr]
        if name == "torch":
            (version,) = re.findall(r"^torch==(\S+)$", constraints, flags=re.MULTILINE)
        found.append(f"{name}=={version}")
    return [*found, *NEIGHBOURS]


if __name__ == "__main__":
    texts = [(ROOT / name).read_text("utf-8") for name in ("pyproject.toml", "constraints.txt")]
    print("\n".join(oldest_versions(*texts)))
