"""Compare what the library computes with values that were stored before a change of its code.

    python -m experiments.tools.same_bits            compare; says which values differ
    python -m experiments.tools.same_bits --store    store the present values instead

The bundled model's table, pairs, groups and verification, and the training of seed 0. A change of
structure must not change a single bit of them. Bits depend on the kernels that torch and NumPy
choose for a processor, so the file also says where it was made.
"""

import argparse
import hashlib
import json
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import count01_lens as cl
from count01_lens.models.lens import state_of

STORED = Path(__file__).parents[2] / "tests" / "data" / "same_bits.json"
CHOSEN_GROUPS = 500  # values of these are stored; of all of them, a checksum
# In training a rounding grows: float32 and float64 give the same for some six epochs, then do not.
ALIKE_EPOCHS = 4


def values_of_the_example() -> dict[str, Any]:
    """Measure the bundled model: heads, pairs, and every sentence up to 100."""
    model = cl.example_model()
    analysis = cl.analyze_heads(model)
    found: dict[str, Any] = {f"table.{name}": list(analysis.table[name]) for name in analysis.table}
    found |= {f"pairs.{name}": matrix for name, matrix in analysis.pairs.items()}
    found["accuracy"] = list(analysis.accuracy.values())
    verified = cl.verify(model, up_to=100).to_dict()
    found |= {f"verify.{name}": value for name, value in verified.items()}
    return {name: _plain(value) for name, value in found.items()}


def values_of_groups() -> dict[str, Any]:
    """Measure all groups of heads of the bundled model."""
    analysis = cl.analyze_heads(cl.example_model())
    groups = analysis.groups()
    chosen = np.linspace(0, len(groups) - 1, CHOSEN_GROUPS).astype(int)
    found: dict[str, Any] = {}
    for name in groups:
        column = groups[name].to_numpy()
        found[f"groups.{name}"] = column[chosen]
        found[f"groups.{name}.sha256"] = _checksum(column)
    for metric in ("l_acc", "roc_auc", "s_acc", "eos_l_acc"):
        found[f"shapley.{metric}"] = analysis.shapley(metric)
    return {name: _plain(value) for name, value in found.items()}


def values_of_training(epochs: int = 100) -> dict[str, Any]:
    """Train seed 0 with the default recipe: its last weights, and its history."""
    result = cl.train(cl.TrainConfig(epochs=epochs), seeds=[0], progress=False)
    last = state_of(result.models[0])
    found: dict[str, Any] = {
        f"trained.{name}.sha256": _checksum(last[name].numpy())
        for name in sorted(last)
        if "IGNORE" not in name and "mask" not in name
    }
    found["trained.W_U"] = last["unembed.W_U"].numpy()
    found |= {f"history.{name}": result.history[name].to_numpy() for name in result.history}
    return {name: _plain(value) for name, value in found.items()}


PARTS = {
    "example": values_of_the_example,
    "groups": values_of_groups,
    "training": values_of_training,
}


def here() -> dict[str, str]:
    """What bits depend on beside the code."""
    return {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "processor": f"{torch.backends.cpu.get_cpu_capability()} {_processor()}",
    }


def _processor() -> str:
    """Family and model: libraries choose kernels by these, too, not by the widest vectors alone."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:  # elsewhere than on Linux
        return platform.processor()
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    told = {name.strip(): value.strip() for name, value in lines.items()}
    return "-".join(told.get(name, "") for name in ("cpu family", "model", "stepping"))


def differences(part: str, stored: dict[str, Any], *, exact: bool) -> list[str]:
    """Name the values of a part that are not as stored: to the bit, or to rounding."""
    found, expected = PARTS[part](), stored[part]
    different = found.keys() ^ expected.keys()
    for name in found.keys() & expected.keys():
        one, two = found[name], expected[name]
        if not exact:
            one, two = _comparable(name, one), _comparable(name, two)
        if one != two and (exact or not _close(one, two)):
            different.add(name)
    return sorted(different)


def _comparable(name: str, value: Any) -> Any:
    """What another processor can be held to: no checksums, and of a training its beginning."""
    if name.startswith("history."):
        return value[:ALIKE_EPOCHS]
    return None if name.endswith("sha256") or name.startswith("trained.") else value


def read() -> dict[str, Any]:
    """Read what was stored."""
    stored: dict[str, Any] = json.loads(STORED.read_text())
    return stored


def _plain(value: Any) -> Any:
    """Lists of texts; numbers are written in hexadecimal, which keeps every bit."""
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bool | np.bool_ | int | np.integer | str) or value is None:
        return value if isinstance(value, str) or value is None else int(value)
    return float(value).hex()


def _close(found: Any, expected: Any) -> bool:
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(map(_close, found, expected))
    try:
        one, two = float.fromhex(found), float.fromhex(expected)
    except (TypeError, ValueError):
        return bool(found == expected)
    return bool(np.isclose(one, two, rtol=1e-3, atol=5e-3, equal_nan=True))


def _checksum(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def main() -> None:
    """Store, or compare and exit with 1 where values differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", action="store_true")
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(PARTS)}; default all")
    arguments = parser.parse_args()
    if arguments.store:
        content = {"made_with": here(), **{name: PARTS[name]() for name in PARTS}}
        STORED.parent.mkdir(parents=True, exist_ok=True)
        STORED.write_text(json.dumps(content, indent=None, separators=(",", ":")) + "\n")
        return
    stored = read()
    if stored["made_with"] != here():
        print(f"stored with {stored['made_with']}, compared with {here()}: bits may differ")
    failed = False
    for part in arguments.parts or PARTS:
        different = differences(part, stored, exact=True)
        failed |= bool(different)
        print(f"{part}: {', '.join(different) if different else 'the same bits'}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
