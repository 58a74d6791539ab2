"""Print the oldest versions of libraries that pyproject.toml allows, as constraints for pip.

python experiments/oldest_versions.py > oldest.txt && pip install --constraint oldest.txt .

torch is the one of constraints.txt: an older one may have no build for this machine.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def oldest_versions(pyproject: str, constraints: str) -> list[str]:
    """Turn `name>=version` of the library's own dependencies into `name==version`."""
    found = []
    for requirement in tomllib.loads(pyproject)["project"]["dependencies"]:
        name, version = re.match(r"([\w.-]+)>=([\w.]+)", requirement).groups()  # type: ignore[union-attr]
        if name == "torch":
            (version,) = re.findall(r"^torch==(\S+)$", constraints, flags=re.MULTILINE)
        found.append(f"{name}=={version}")
    return found


if __name__ == "__main__":
    texts = [(ROOT / name).read_text("utf-8") for name in ("pyproject.toml", "constraints.txt")]
    print("\n".join(oldest_versions(*texts)))
