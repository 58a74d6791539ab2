"""Addresses that somebody else made: a link to the explorer whose fragment is an attack.

Each fragment is random parts of what the explorer writes itself, changed, repeated and mixed with
numbers and names that programs stumble over.
"""

import json
import subprocess
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import numpy as np

from count01_lens.views.explorer_module import joined
from tests.attacks.hostile_texts import HOSTILE
from tests.views.explorer.engines import NODE

NAMES = ["model", "heads", "off", "others", "n", "page", "weights", "sentence", "w01", "w02"]
ODD_NAMES = ["__proto__", "constructor", "prototype", "toString", "w0__proto__", "w01 ", "", "0"]
NUMBERS = [
    "0", "1", "2", "3", "-0", "-1", "0.5", "1e999", "-1e999", "1e308", "5e-324", "NaN", "nan",
    "Infinity", "inf", "∞", "own", "0x10", "1e3", "9007199254740993", "1,5", " 1 ", "", "+1", "null",
]  # fmt: skip
WORDS = ["zero", "keep", "0:1", "1:0,2:0", "[BOS]:1e308,0:1e308", "0:-0", "0:", ":", "__proto__:1"]
WORDS += ["0110=", "[BOS]0110212=4[EOS]", "=", "0" * 2000 + "=", "constructor:1", "0:1e-320", "=:0"]
GOOD = {"shown", "refused with a sentence", "about something else"}
ASK = """
const models = JSON.parse(readFileSync(process.argv[2]));
const before = JSON.stringify(Object.getOwnPropertyNames(Object.prototype));
const ask = (fragment) => {
  let found;
  try {
    found = readFragment(models, fragment);
  } catch (error) {
    if (!(error instanceof RangeError || error instanceof URIError)) return `threw ${error}`;
    return error.message.length <= 300 ? "refused with a sentence" : "a refusal without end";
  }
  if (found === null) return "about something else";
  if (Object.getPrototypeOf(found.ratios) !== Object.prototype) return "another prototype";
  const numbers = [...found.counts, ...Object.values(found.ratios), ...Object.values(found.weights ?? {})];
  if (numbers.some((n) => n !== null && !(n >= 0))) return "a number that is none";
  if (numbers.some((n) => Object.is(n, -0))) return "a zero below zero";
  const again = readFragment(models, fragmentOf(models, found) || "#explore?");
  return JSON.stringify(again, asJson) === JSON.stringify(found, asJson) ? "shown" : "another state when read again";
};
const outcomes = JSON.parse(readFileSync(process.argv[3])).map(ask);
if (JSON.stringify(Object.getOwnPropertyNames(Object.prototype)) !== before) outcomes.push("all objects changed");
console.log(JSON.stringify(outcomes));
"""
MODELS = [
    {"nCtx": 1024, "nHeads": 16, "language": {"symbols": ["0", "1", "2"], "answers": ["4", "5"], "most": [200] * 3}},
    {"nCtx": 64, "nHeads": 2, "language": {"symbols": list("abcde"), "answers": list("ABCDE"), "most": [20] * 5}},
]  # fmt: skip


def fragments(cases: int, seed: int) -> list[str]:
    """Random addresses; some as a browser escapes them, some as they are."""
    rng = np.random.default_rng(seed)

    def some(among: list[str]) -> str:
        return among[int(rng.integers(len(among)))]

    def value() -> str:
        kind = int(rng.integers(5))
        if kind == 0:
            return some(WORDS)
        if kind == 1:
            return some(HOSTILE)
        if kind == 2:
            return ",".join(some(NUMBERS) for _ in range(int(rng.integers(1, 6))))
        if kind == 3 and rng.random() < 0.1:
            return some(["0", "0,", "a", "%", "<b>"]) * 100_000
        return some(NUMBERS)

    made = []
    for _ in range(cases):
        names = [
            some(NAMES if rng.random() < 0.9 else ODD_NAMES) for _ in range(rng.integers(1, 4))
        ]
        escape = quote if rng.random() < 0.8 else str
        text = "&".join(f"{name}={escape(value())}" for name in names)
        made.append(some(["#explore?"] * 19 + ["#"]) + text)
    return made


def attack_fragments(cases: int, seed: int) -> Counter[str]:
    """Let node read fragments as the explorer does."""
    assert NODE is not None, "install Debian's `nodejs` to run this"
    with TemporaryDirectory() as name:
        script, models, given = (Path(name) / part for part in ("run.mjs", "models", "given"))
        code = 'import { readFileSync } from "node:fs";\n'
        script.write_text(code + joined(("state.js",)) + ASK)
        models.write_text(json.dumps(MODELS))
        given.write_text(json.dumps(fragments(cases, seed)))
        done = subprocess.run(
            [NODE, script, models, given], capture_output=True, text=True, check=True
        )
    return Counter(json.loads(done.stdout))
