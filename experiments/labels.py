"""The label: every answer of the data set, held against counting tokens by hand."""

import sys

import pandas as pd

import count01_lens as cl
from count01_lens.jobs.job import Job
from experiments.setup import Setup
from experiments.suite import Load, Measured, main

ROW, TITLE = "D2", "The label"
CONTRAST = False
PAPER = "'4' iff there are more 1s than 0s, else '5' (ties are '5')"


def jobs(setup: Setup) -> list[Job]:
    """Nothing heavy."""
    return []


def measure(load: Load, setup: Setup) -> Measured:
    """Write sentences out as tokens, and count in the text."""
    splits, rows = cl.make_splits(0), []
    for name in ("train", "validation", "test"):
        split = getattr(splits, name)
        texts = [cl.decode(sequence) for sequence in split.sequences()]
        right = [
            text.endswith("=4[EOS]" if text.count("1") > text.count("0") else "=5[EOS]")
            for text in texts
        ]
        ties = [text.count("1") == text.count("0") for text in texts]
        rows.append(
            (name, len(texts), sum(right), sum(ties), sum(text.count("=4") for text in texts))
        )
    table = pd.DataFrame(rows, columns=["split", "sentences", "right", "ties", "answer_4"])
    total = table[["sentences", "right", "ties"]].sum()
    return Measured(
        numbers={
            "labels_right": float(total["right"] / total["sentences"]),
            "ties": int(total["ties"]),
        },
        shows=f"All {total['right']} of {total['sentences']} written sentences have the right "
        f"answer; {total['ties']} are ties, answered by '5'.",
        tables={"labels": table},
        seeds=[0],
    )


if __name__ == "__main__":
    main(sys.modules[__name__])
