"""Results of a suite, read back and checked: what does not belong together is refused."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from count01_lens.common.storage import sha256
from experiments import rows

CLAIMS_FILE = Path(__file__).with_name("claims.py")
ROWS = {module.ROW: module.TITLE for module in rows.ROWS}
VERDICTS = ("reproduced", "partly", "not reproduced", "too few", "not measured")


@dataclass(frozen=True)
class Results:
    """What an experiment suite left in a directory, checked.

    Attributes:
        directory: where it is.
        suite: size, rules, versions, time, and why rows failed.
        claims: each with our number and the verdict.
        rows: the measured ones, by their ids.
    """

    directory: Path
    suite: Mapping[str, Any]
    claims: Sequence[Mapping[str, Any]]
    rows: Mapping[str, Mapping[str, Any]]

    def claims_of(self, row: str) -> list[Mapping[str, Any]]:
        """The claims that a row of figures and tables decides."""
        return [claim for claim in self.claims if claim["row"] == row]


def read_results(directory: Path, claims_file: Path = CLAIMS_FILE) -> Results:
    """Read the results of a suite.

    Raises:
        ValueError: something is missing or damaged, or does not belong together.
    """
    suite = _read_json(directory / "suite.json", dict, ("size", "claims_sha256", "versions"))
    rules = sha256(claims_file.read_bytes()) if claims_file.is_file() else "no such file"
    if suite["claims_sha256"] != rules:
        raise ValueError(
            f"{directory / 'suite.json'}: expected verdicts by the rules of {claims_file.name} "
            f"(SHA-256 {_short(rules)}), got others ({_short(suite['claims_sha256'])}); run the "
            "suite again, or go back to the rules that it was judged by"
        )
    claims = _read_json(directory / "claims.json", list)
    for claim in claims:
        _check_claim(claim, directory / "claims.json")
    failed = suite.get("failed") or {}
    rows = {}
    for name in ROWS:
        path = directory / name / "numbers.json"
        if name not in failed and path.exists():
            rows[name] = _read_row(path, name, suite)
    return Results(directory, suite, claims, rows)


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
    for key, known in (("row", ROWS), ("verdict", VERDICTS)):
        if claim[key] not in known:
            raise ValueError(
                f"{path}: expected a {key} among {', '.join(known)}, got {claim[key]!r} in "
                f"{claim['id']}; run the suite again"
            )


def _check_words(values: Mapping[str, Any], keys: Sequence[str], path: Path) -> None:
    for key in keys:
        if not isinstance(values[key], str):
            raise ValueError(f"{path}: {key}: expected words, got {values[key]!r}; run it again")


def row_file(results: Results, row: str, name: str) -> Path:
    """Return the path of a file that a row names as its own, and that is there."""
    path = results.directory / row / name
    if Path(name).name != name or not path.is_file():
        raise ValueError(
            f"{path}: expected a file of row {row}, got none; run {row} again to write it"
        )
    return path
