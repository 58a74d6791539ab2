"""What commands print: for people at any width, for programs, in any encoding, without Python."""

import io
import json
import os
import subprocess
import sys
from importlib.metadata import version

import pandas as pd
import pytest
from typer.testing import CliRunner

import count01_lens as cl
from count01_lens.cli import app
from count01_lens.cli.options import in_options
from count01_lens.cli.screen import print_what_can_be, say, say_json
from count01_lens.models.checkpoints import example_file, save_checkpoint
from count01_lens.models.config import ModelConfig
from count01_lens.models.handcrafted import cooperative_model
from tests.helpers import PROGRAM

EXAMPLE = str(example_file("accurate"))


def invoke(*arguments, width=80):
    return CliRunner(env={"COLUMNS": str(width)}).invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return save_checkpoint(cooperative_model(), tmp_path_factory.mktemp("models") / "pair")


# For people


@pytest.mark.parametrize("width", [80, 140])
def test_an_analysis_fits_the_screen(width):
    done = invoke("analyze", EXAMPLE, "--groups", "none", width=width)
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert max(map(len, lines)) <= width
    (header,) = [line for line in lines if line.startswith("head ")]
    assert header.split()[:5] == ["head", "category", "s_acc", "l_acc", "readout"]
    assert ("w01" in header) == (width == 140)
    rows = lines[lines.index(header) + 1 :][:16]
    assert [row.split()[0] for row in rows] == [str(head) for head in range(16)]
    assert all("> 0" in row for row in rows)
    assert "--wide also shows" in done.stderr
    assert "--groups all" in done.stdout
    assert "with_groups" not in done.output


def test_wide_shows_all_columns_in_tables_that_fit():
    done = invoke("analyze", EXAMPLE, "--groups", "none", "--wide")
    assert max(map(len, done.output.splitlines())) <= 80
    headers = [line.split() for line in done.stdout.splitlines() if line.startswith("head ")]
    assert len(headers) > 1
    columns = set(cl.analyze_heads(cl.example_model()).table)
    assert {name for header in headers for name in header} == columns - {
        "layer",
        "learned_readout",
        "learned_readout_off",
    }
    for raw in ("e+", "e-0", "inf ", "nan"):
        assert raw not in done.stdout


@pytest.mark.parametrize(
    "command", sorted(one.name or one.callback.__name__ for one in app.registered_commands)
)
def test_help_fits_80_columns_without_names_of_types(command):
    done = invoke(command.replace("_", "-"), "--help")
    assert done.exit_code == 0
    assert max(map(len, done.output.splitlines())) <= 80
    assert len(done.output.splitlines()) <= 60
    for noise in ("<int>", "INTEGER", "<str>", "list[", "ModelConfig", "TrainConfig"):
        assert noise not in done.output


def test_the_options_of_train_stand_in_groups():
    text = invoke("train", "--help").output
    model, training = text.index("\nModel:"), text.index("\nTraining:")
    assert text.index("--out") < model < text.index("--heads") < training < text.index("--epochs")


def test_the_version_and_mistyped_words():
    done = invoke("--version")
    assert (done.exit_code, done.output) == (0, f"count01-lens {version('count01-lens')}\n")
    assert "Did you mean 'train'?" in invoke("trian").output
    assert "--epochs" in invoke("train", "--epoch", "3").output


def test_the_version_loads_nothing_heavy():
    code = (
        "import sys; sys.argv[1:] = ['--version']\nfrom count01_lens.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'numpy', 'pandas', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1:] == ["[]"]


# For programs


def test_json_and_csv_are_all_there_is_on_stdout(pair, tmp_path):
    done = invoke("analyze", pair, "--json", "--report", tmp_path / "report.html")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert [head["head"] for head in found["heads"]] == [0, 1]
    assert found["findings"][0]["word"] == "cooperate"
    assert "written to" in done.stderr
    done = invoke("analyze", pair, "--csv", "--groups", "none")
    table = pd.read_csv(io.StringIO(done.stdout))
    assert list(table["head"]) == [0, 1]
    assert "learned_readout" in table
    both = invoke("analyze", pair, "--csv", "--json")
    assert "expected one of them, got both" in str(both.exception)


def test_training_prints_its_models_as_data(tmp_path):
    small = ["--heads", 2, "--d-embed", 4, "--epochs", 1, "--batch-size", 700]
    command = ["train", "--out", tmp_path / "run", "--seeds", "0-1", *small]
    models = json.loads(invoke(*command, "--json").stdout)
    assert [model["seed"] for model in models] == [0, 1]
    assert cl.load_checkpoint(models[1]["checkpoint"]).cfg.n_heads == 2
    table = pd.read_csv(io.StringIO(invoke(*command, "--csv").stdout))
    assert table["test_accuracy"].tolist() == [model["test_accuracy"] for model in models]
    plain = invoke(*command).stdout.splitlines()
    assert len(plain) == 3  # a path is never broken
    assert plain[2].endswith(models[1]["checkpoint"])


def test_comparisons_as_data(pair, tmp_path):
    save_checkpoint(cl.ensemble_model(2), tmp_path / "other")
    command = ["compare", pair, tmp_path / "other", "-o", tmp_path / "page.html"]
    found = json.loads(invoke(*command, "--json").stdout)
    assert [model["model"] for model in found["models"]] == ["pair", "other"]
    table = pd.read_csv(io.StringIO(invoke(*command, "--csv").stdout))
    assert list(table["model"]) == ["pair", "other"]
    done = invoke(*command)
    assert all(len(line) <= 80 or "written to" in line for line in done.output.splitlines())


def test_numbers_that_json_has_not(capsys):
    say_json({"a": [float("nan"), float("inf"), -float("inf"), 0.5]})
    assert json.loads(capsys.readouterr().out) == {"a": [None, "inf", "-inf", 0.5]}


# In the words of the command line


@pytest.mark.parametrize(
    ("python", "command"),
    [
        ("fail_under: expected a share", "--fail-under: expected a share"),
        ("n_heads: expected a whole number", "--heads: expected a whole number"),
        ("seeds: expected at least one", "--seeds: expected at least one"),
        ("give d_head, for example d_head=1", "give --d-head, for example --d-head=1"),
        ("See .with_groups() for all groups.", "See --groups all for all groups."),
        ("call analysis.with_groups() first", "call --groups all first"),
        ("overwrite it with force=True", "overwrite it with --force"),
        ("take cl.load_checkpoint('a/b')", "take 'a/b'"),
        ("{'n_heads': 8}: n_heads is 8", "{'n_heads': 8}: --heads is 8"),
        ("task.json: test.tokens: expected", "task.json: test.tokens: expected"),
        ("runs/d_head/seed-0: no such file", "runs/d_head/seed-0: no such file"),
        ("16 heads, of which 3 failed", "16 heads, of which 3 failed"),
    ],
)
def test_messages_name_options(python, command):
    assert in_options(python) == command


# In any encoding


@pytest.mark.parametrize("encoding", [pytest.param("ascii", marks=pytest.mark.slow), "cp1252"])
def test_output_degrades_and_files_are_written(pair, tmp_path, encoding):
    env = {**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "80"}
    command = [str(PROGRAM), "analyze", str(pair), "--report", str(tmp_path / "report.html")]
    done = subprocess.run(command, capture_output=True, env=env)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode(encoding)
    assert "n1 - 50.618 > 0" in text  # a true minus sign elsewhere
    assert "n1 − 50.618" in (tmp_path / "report.html").read_text("utf-8")
    assert max(map(len, text.partition("written to")[0].splitlines())) <= 80


def test_what_a_stream_has_not_is_written_otherwise(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    print_what_can_be()
    say("0.5 ≥ −1 ·x – ∞")
    print("漢 ≤")
    stream.flush()
    assert stream.buffer.getvalue() == b"0.5 >= -1 *x - inf\n? <=\n"


# What works here


@pytest.mark.parametrize("width", range(40, 60))
def test_no_line_ends_between_a_number_and_its_percent_sign(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    text = (
        "It is enough for 99 % of what all of the 16 heads of it gain together, or for 100 % of it."
    )
    say(text)
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(map(str.strip, lines)) == text
    assert max(map(len, lines)) <= width
    assert not any(line.strip().startswith("%") for line in lines)


def test_the_doctor_finds_what_works():
    done = invoke("doctor", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["works"] is True
    states = {finding["name"]: finding["state"] for finding in found["findings"]}
    for name in ("Python", "libraries", "TransformerLens", "example model", "running models"):
        assert states[name] == "ok"
    assert "seconds" in done.stderr


def test_the_doctor_says_what_is_broken(monkeypatch):
    module = sys.modules["count01_lens.cli.doctor"]

    def _example():
        raise ImportError("no torch")
        yield

    monkeypatch.setattr(module, "_LOOKS", {module._python: "", _example: ""})
    done = invoke("doctor")
    assert done.exit_code == 1
    assert "BROKEN" in done.output
    assert "ImportError: no torch" in done.output
    assert "Broken: example" in done.output
    assert json.loads(invoke("doctor", "--json").stdout)["works"] is False


def test_what_need_not_be_there_breaks_nothing(monkeypatch):
    module = sys.modules["count01_lens.cli.doctor"]
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    looks = {module._notebooks: "", module._clusters: ""}
    monkeypatch.setattr(module, "_LOOKS", looks)
    done = invoke("doctor")
    assert done.exit_code == 0
    assert "pip install jupyterlab" in done.output
    assert "pip install 'count01-lens[cluster]'" in " ".join(done.output.split())


# Files of others


def test_commands_keep_files_that_they_did_not_write(pair, tmp_path):
    out, mine = tmp_path / "out", "my own table"
    out.mkdir()
    (out / "heads.csv").write_text(mine)
    (tmp_path / "page.html").write_text(mine)
    for command in (
        ["analyze", pair, "--out", out],
        ["analyze", pair, "--report", tmp_path / "page.html"],
        ["explore", pair, "-o", tmp_path / "page.html"],
        ["view", pair, "01=", "-o", tmp_path / "page.html"],
        ["compare", pair, "-o", tmp_path / "page.html"],
        ["sweep-models", "--out", out, "--seeds", "0"],
    ):
        done = invoke(*command)
        assert isinstance(done.exception, ValueError), command
        assert "got another file" in str(done.exception)
        assert done.stdout == ""
    assert (out / "heads.csv").read_text() == (tmp_path / "page.html").read_text() == mine
    assert [path.name for path in out.iterdir()] == ["heads.csv"]
    explore = ["explore", pair, "-o", tmp_path / "page.html", "--force"]
    assert invoke(*explore).exit_code == invoke(*explore[:-1]).exit_code == 0


@pytest.mark.slow
def test_nothing_of_another_model_stays_beside_new_tables(pair, tmp_path):
    other = tmp_path / "other"
    save_checkpoint(cl.build_model(ModelConfig(d_embed=3, n_heads=3), seed=1), other)
    assert invoke("analyze", other, "--groups", "all", "--out", tmp_path / "out").exit_code == 0
    before = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"groups.csv", "tables_head_2.svg", "shapley.svg"} <= before
    done = invoke("analyze", pair, "--groups", "none", "--out", tmp_path / "out")
    assert "removed, of an earlier run: " in done.output
    left = {path.name for path in (tmp_path / "out").iterdir()}
    assert not {name for name in left if name.startswith(("groups", "shapley", "tables_head_2"))}
    fresh = invoke("analyze", pair, "--groups", "none", "--out", tmp_path / "fresh")
    assert fresh.exit_code == 0
    assert left == {path.name for path in (tmp_path / "fresh").iterdir()}


def test_an_analysis_that_was_saved_by_hand_is_kept(pair, tmp_path):
    kept = tmp_path / "analysis.safetensors"
    cl.analyze_heads(cl.load_checkpoint(pair)).save(kept)
    before = kept.read_bytes()
    done = invoke("analyze", pair, "--groups", "none", "--out", tmp_path)
    assert "analysis.safetensors: expected a file that count01-lens analyze" in str(done.exception)
    assert kept.read_bytes() == before


def test_a_path_is_not_taken_for_an_argument(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report").mkdir()
    text = "report: expected a file to write, got a directory"
    assert in_options(text) == text
    text = "n_heads/seed-00: no such file; did you mean n_heads/seed-0?"
    assert in_options(text) == text
    assert in_options("n_heads: expected a number, got n_heads 3").startswith("--heads: expected")
    assert in_options("seeds: expected numbers").startswith("--seeds: expected")


@pytest.mark.slow
def test_analyses_and_sweeps_do_not_overwrite_each_other(pair, tmp_path):
    analyze = ["analyze", pair, "--groups", "none", "--out", tmp_path / "out"]
    for _ in range(2):
        assert invoke(*analyze).exit_code == 0
    before = (tmp_path / "out" / "heads.csv").read_bytes()
    done = invoke("sweep-models", "--out", tmp_path / "out", "--seeds", "0")
    assert "got one of count01-lens analyze" in str(done.exception)
    assert not (tmp_path / "out" / "jobs").exists()
    assert (tmp_path / "out" / "heads.csv").read_bytes() == before
    config = cl.TrainConfig(model=ModelConfig(d_embed=2, n_heads=1), epochs=1)
    for _ in range(2):
        cl.sweep_models([config], [0], tmp_path / "sweep", workers=0)
    done = invoke("analyze", pair, "--out", tmp_path / "sweep")
    assert "got one of count01-lens sweep-models" in str(done.exception)


def test_train_takes_no_directory_of_others_for_its_own(tmp_path):
    (tmp_path / "run" / "snapshots").mkdir(parents=True)
    (tmp_path / "run" / "snapshots" / "holiday.png").write_text("mine")
    done = invoke("train", "--out", tmp_path / "run")
    assert "got snapshots/holiday.png; choose another directory" in str(done.exception)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["snapshots"]
