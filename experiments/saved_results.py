"""Results of a suite, read back and checked: what does not belong together is refused."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from count01_lens.common.storage import sha256
from experiments import claims as rules
from experiments import rows
from experiments.suite import CONTRAST

CLAIMS_FILE = Path(rules.__file__)
ROWS = {module.ROW: module.TITLE for module in rows.ROWS}
# A claim is written before its experiment.
ROWS |= {claim.row: "no experiment yet" for claim in rules.CLAIMS if claim.row not in ROWS}
VERDICTS = ("reproduced", "partly", "not reproduced", "too few", "not measured")
OURS = ("ours", "-")  # in place of a value of the paper, which does not make these claims


@dataclass(frozen=True)
class Results:
    """What an experiment suite left in a directory, checked.

    Attributes:
        directory: where it is.
        suite: size, rules, versions, time, and why rows failed.
        claims: each with our number and the verdict.
        rows: the measured ones, by their ids.
        contrast: those measured with the contrasting recipe, too.
    """

    directory: Path
    suite: Mapping[str, Any]
    claims: Sequence[Mapping[str, Any]]
    rows: Mapping[str, Mapping[str, Any]]
    contrast: Mapping[str, Mapping[str, Any]]

    def claims_of(self, row: str) -> list[Mapping[str, Any]]:
        """The claims that a row of figures and tables decides."""
        return [claim for claim in self.claims if claim["row"] == row]

    def why_not(self, name: str) -> str:
        """Why a row, or "contrast/ROW", was not measured."""
        reason = (self.suite.get("failed") or {}).get(name, "").strip()
        # The last line of a failure says what went wrong; those before are a traceback.
        return f"It failed: {reason.splitlines()[-1]}" if reason else "There are no results of it."

    def score(self) -> dict[str, Counter[str]]:
        """Verdicts counted: on the paper's claims, on those with a contrast twice, and on ours."""
        paper = [claim for claim in self.claims if claim["paper"] not in OURS]
        twice = [claim for claim in paper if claim.get("contrast") is not None]
        groups: dict[str, list[Mapping[str, Any]]] = {
            "paper": paper,
            "twice": twice,
            "contrast": [claim["contrast"] for claim in twice],
            "ours": [claim for claim in self.claims if claim["paper"] in OURS],
        }
        return {
            name: Counter(claim["verdict"] for claim in group) for name, group in groups.items()
        }

    def recipes(self) -> list[tuple[str, Any, Any]]:
        """Where the two recipes differ: field, the paper's, the contrasting one's."""
        # Most rows share the models of F3, and have its recipe.
        for name in ("F3", *self.rows):
            if name in self.rows and name in self.contrast:
                one, other = (
                    dict(_flat(rows[name].get("recipe") or {}))
                    for rows in (self.rows, self.contrast)
                )
                return [
                    (field, value, other.get(field))
                    for field, value in one.items()
                    if value != other.get(field)
                ]
        return []


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value)
        else:
            yield name, value


def read_results(directory: Path, claims_file: Path = CLAIMS_FILE) -> Results:
    """Read the results of a suite.

    Raises:
        ValueError: something is missing or damaged, or does not belong together.
    """
    suite = _read_json(directory / "suite.json", dict, ("size", "claims_sha256", "versions"))
    ruling = sha256(claims_file.read_bytes()) if claims_file.is_file() else "no such file"
    if suite["claims_sha256"] != ruling:
        raise ValueError(
            f"{directory / 'suite.json'}: expected verdicts by the rules of {claims_file.name} "
            f"(SHA-256 {_short(ruling)}), got others ({_short(suite['claims_sha256'])}); run the "
            "suite again, or go back to the rules that it was judged by"
        )
    claims = _read_json(directory / "claims.json", list)
    for claim in claims:
        _check_claim(claim, directory / "claims.json")
    found = [_read_rows(directory, within, suite) for within in ("", f"{CONTRAST}/")]
    return Results(directory, suite, claims, *found)


def _read_rows(directory: Path, within: str, suite: Mapping[str, Any]) -> dict[str, Any]:
    failed = suite.get("failed") or {}
    found = {}
    for name in ROWS:
        path = directory / within / name / "numbers.json"
        if within + name not in failed and path.exists():
            found[name] = _read_row(path, name, suite)
    return found


def _short(digest: str) -> str:
    return digest if len(digest) < 20 else f"{digest[:12]}…"


def _read_json(path: Path, kind: type, keys: Sequence[str] = ()) -> Any:
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{path}: expected JSON written by the experiment suite, got {error}; run "
            "python -m experiments first"
        ) from error
    missing = [key for key in keys if not isinstance(value, dict) or key not in value]
    if not isinstance(value, kind) or missing:
        got = f"no {', '.join(missing)}" if missing else f"a {type(value).__name__}"
        raise ValueError(
            f"{path}: expected a {kind.__name__} written by the experiment suite, got {got}; run "
            "it again"
        )
    return value


def _read_row(path: Path, name: str, suite: Mapping[str, Any]) -> Mapping[str, Any]:
    keys = ("row", "title", "paper", "shows", "size", "claims_sha256", "versions", "numbers")
    row: Mapping[str, Any] = _read_json(path, dict, keys)
    _check_words(row, ("title", "paper", "shows"), path)
    expected = {"row": name, "size": suite["size"], "claims_sha256": suite["claims_sha256"]}
    for key, value in expected.items():
        if row[key] != value:
            raise ValueError(
                f"{path}: expected {key} {_short(value)} as in suite.json, got "
                f"{_short(str(row[key]))}; results of different runs are not mixed: run {name} "
                "again, or move it away"
            )
    return row


def _check_claim(claim: Any, path: Path) -> None:
    keys = ("id", "row", "statement", "paper", "value", "reproduced", "partly", "verdict")
    missing = [key for key in keys if not isinstance(claim, dict) or key not in claim]
    if missing:
        raise ValueError(
            f"{path}: expected claims with {', '.join(missing)}, got {claim!r}; run the suite again"
        )
    _check_words(claim, ("id", "statement", "paper"), path)
    contrast = claim.get("contrast")
    if contrast is not None and not (isinstance(contrast, dict) and "value" in contrast):
        raise ValueError(
            f"{path}: expected a contrast with value and verdict, or none, got {contrast!r} in "
            f"{claim['id']}; run the suite again"
        )
    checked = [("row", claim["row"], ROWS), ("verdict", claim["verdict"], VERDICTS)]
    checked += [] if contrast is None else [("verdict", contrast.get("verdict"), VERDICTS)]
    for key, value, known in checked:
        if value not in known:
            raise ValueError(
                f"{path}: expected a {key} among {', '.join(known)}, got {value!r} in "
                f"{claim['id']}; run the suite again"
            )


def _check_words(values: Mapping[str, Any], keys: Sequence[str], path: Path) -> None:
    for key in keys:
        if not isinstance(values[key], str):
            raise ValueError(f"{path}: {key}: expected words, got {values[key]!r}; run it again")


def row_file(results: Results, row: str, name: str) -> Path:
    """Return the path of a file that a row, or "contrast/ROW", names as its own: it is there."""
    path = results.directory / row / name
    if Path(name).name != name or not path.is_file():
        raise ValueError(
            f"{path}: expected a file of row {row}, got none; run {row} again to write it"
        )
    return path
