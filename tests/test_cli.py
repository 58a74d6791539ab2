import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from count01_lens.cli import app
from count01_lens.common.parsing import parse_numbers
from count01_lens.models.build import build_model
from count01_lens.models.checkpoints import checkpoint_info, load_checkpoint, save_checkpoint
from count01_lens.models.config import ModelConfig
from count01_lens.models.handcrafted import cooperative_model, minimal_model
from count01_lens.training.recipe import TrainConfig
from count01_lens.views.circuits_page import _bundle
from tests.helpers import PROGRAM, run, within
from tests.processes import started
from tests.views.other_tasks import model_of

SMALL = ["--heads", "2", "--d-embed", "4", "--epochs", "2", "--batch-size", "700"]


def test_train_leaves_checkpoints_and_a_summary(tmp_path):
    done = run("train", "--out", tmp_path / "run", "--seeds", "0,3", *SMALL)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["seed", "loss", "validation", "test", "[EOS]", "checkpoint"]
    assert [line.split()[0] for line in lines[1:]] == ["0", "3"]
    assert "epoch 2/2  2 models  loss" in done.stderr
    assert load_checkpoint(tmp_path / "run" / "seed-3").cfg.n_heads == 2
    assert checkpoint_info(tmp_path / "run" / "seed-3")["info"]["recipe"]["epochs"] == 2

    again = run("train", "--out", tmp_path / "run", "--seeds", "0,3", *SMALL)
    assert again.returncode == 0, again.stderr
    assert again.stdout == done.stdout
    assert again.stderr == ""

    other = run("train", "--out", tmp_path / "run", "--seeds", "0,3")
    assert other.returncode == 2
    assert "holds another run (its configs, snapshot_steps differ)" in other.stderr


def test_every_choice_of_a_recipe_reaches_the_model(tmp_path):
    choices = [
        "--qkv-bias",
        "--init",
        "xavier",
        "--decay",
        "cosine",
        "--optimiser",
        "sgd",
        "--no-layer-norm",
    ]
    numbers = [
        "--weight-decay",
        "0.2",
        "--dropout",
        "0.1",
        "--eos-weight",
        "3",
        "--learning-rate",
        "0.01",
    ]
    done = run("train", "--out", tmp_path / "run", *SMALL, *choices, *numbers)
    assert done.returncode == 0, done.stderr
    recipe = TrainConfig.from_dict(checkpoint_info(tmp_path / "run" / "seed-0")["info"]["recipe"])
    shape = {"qkv_bias": True, "init": "xavier", "layer_norm": False}
    assert recipe == TrainConfig(
        model=ModelConfig(d_embed=4, n_heads=2, **shape), epochs=2, batch_size=700, decay="cosine",
        optimiser="sgd", weight_decay=0.2, dropout=0.1, eos_weight=3, learning_rate=0.01,
    )  # fmt: skip
    unknown = run("train", "--out", tmp_path / "other", *SMALL, "--optimiser", "lion")
    assert unknown.returncode == 2
    assert "'lion' is not one of 'adamw', 'adam', 'sgd'" in " ".join(unknown.stderr.split())


@pytest.mark.slow
def test_a_named_recipe_gives_all_that_was_not_said(tmp_path):
    said = ["--recipe", "paper", "--epochs", "1", "--heads", "4", "--weight-decay", "0.01"]
    done = run("train", "--out", tmp_path / "run", *said)
    assert done.returncode == 0, done.stderr
    recipe = TrainConfig.from_dict(checkpoint_info(tmp_path / "run" / "seed-0")["info"]["recipe"])
    assert recipe == TrainConfig.paper().changed(epochs=1, n_heads=4, weight_decay=0.01)
    assert recipe != TrainConfig().changed(epochs=1, n_heads=4)


@pytest.mark.slow
def test_verify_prints_text_or_json_and_sets_the_exit_code(tmp_path):
    save_checkpoint(minimal_model(), tmp_path / "good")
    save_checkpoint(minimal_model(epsilon=0.5), tmp_path / "bad")
    done = run("verify", tmp_path / "good", "--up-to", 20)
    assert done.returncode == 0, done.stderr
    assert "all 9,261 sentences" in done.stdout
    done = run("verify", tmp_path / "good", "--up-to", 20, "--json", "--fail-under", 1)
    assert done.returncode == 0
    assert json.loads(done.stdout)["accuracy"] == 1.0
    done = run("verify", tmp_path / "bad", "--up-to", 20, "--fail-under", 0.999)
    assert done.returncode == 1
    assert "smallest wrong answers" in done.stdout
    kept = tmp_path / "kept.safetensors"
    for _ in range(2):
        done = run("verify", tmp_path / "good", "--up-to", 20, "--resume", kept)
        assert "all 9,261 sentences" in done.stdout
    done = run("verify", tmp_path / "bad", "--up-to", 20, "--resume", kept)
    assert done.returncode == 2
    assert "of another model; choose another file" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verify", "nowhere"], "nowhere.safetensors: no such file"),
        (["train", "--out", "x", "--heads", "0"], "--heads: expected a whole number"),
        (["train", "--out", "x", "--seeds", "one"], "--seeds: expected numbers such as"),
        (["train", "--out", "x", "--heads", "64"], "give --d-head"),
        (["train", "--out", "x", "--learning-rate", "-1"], "--learning-rate: expected"),
        (["train", "--out", "/dev/null/x"], "/dev/null"),
    ],
)
def test_mistakes_give_one_line_and_exit_code_2(tmp_path, arguments, message):
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("count01-lens: ")
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_usage_errors_and_help():
    assert run("train").returncode == 2
    assert run("fly").returncode == 2
    text = run("train", "--help").stdout
    for word in ("--seeds", "--eos-weight", "the paper's a", "goes on where it was", "16"):
        assert word in " ".join(text.split())
    assert "8.1 million" in run("verify", "--help").stdout


def test_defaults_are_those_of_the_library():
    recipe = TrainConfig()
    expected = {
        "heads": recipe.model.n_heads, "d_embed": recipe.model.d_embed, "d_head": None,
        "output": recipe.model.output, "layer_norm": recipe.model.layer_norm,
        "epochs": recipe.epochs, "batch_size": recipe.batch_size,
        "learning_rate": recipe.learning_rate, "eos_weight": recipe.eos_weight,
        "data_seed": recipe.data_seed, "qkv_bias": recipe.model.qkv_bias,
        "init": recipe.model.init, "decay": recipe.decay, "optimiser": recipe.optimiser,
        "weight_decay": recipe.weight_decay, "dropout": recipe.dropout,
    }  # fmt: skip
    options = {option.name: option for option in get_command(app).commands["train"].params}
    assert {name: options[name].default for name in expected} == expected
    text = run("train", "--help").stdout + run("sweep-models", "--help").stdout
    for words in ("16", "32", "100", "0.005", "(d_embed // heads)", "(up to 50)"):
        assert f"[default: {words}]" in " ".join(text.split())


def test_help_and_import_load_nothing_heavy():
    heavy = "{'torch', 'numpy', 'pandas', 'transformer_lens', 'transformers'}"
    code = (
        "import sys; from count01_lens.cli import app; import count01_lens;"
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("3", [3]), ("0-3", [0, 1, 2, 3]), ("1, 5,7", [1, 5, 7]), ("0-1,8", [0, 1, 8])],
)
def test_seeds(text, seeds):
    assert parse_numbers(text, "seeds") == seeds


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "1..3", "0-99999999999", "1,,2"])
def test_bad_seeds(text):
    with pytest.raises(ValueError, match="seeds: expected"):
        parse_numbers(text, "seeds")


def test_ctrl_c_says_how_to_go_on(tmp_path):
    command = [str(PROGRAM), "train", "--out", str(tmp_path / "run"), *SMALL, "--epochs", "100000"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with started(*command, **pipes) as process:
        assert within(120, (tmp_path / "run" / "state.safetensors").exists)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "the same command goes on from the last complete epoch" in errors
    assert "Traceback" not in errors


def test_json_is_valid_and_shares_are_shares(tmp_path):
    save_checkpoint(minimal_model(), tmp_path / "good")
    done = run("verify", tmp_path / "good", "--up-to", 0, "--json")
    values = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert values["non_tie_accuracy"] is None
    for share in ("95", "nan", "-1"):
        assert run("verify", tmp_path / "good", "--fail-under", share).returncode == 2


def test_analyze_prints_the_table_and_writes_files(tmp_path):
    save_checkpoint(cooperative_model(), tmp_path / "model")
    out = tmp_path / "out"
    done = run("analyze", tmp_path / "model", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "Alone, both heads are classed as failed (s-acc at most 0.60)." in done.stdout
    assert "On the answer and on '[EOS]', the heads cooperate." in done.stdout
    last = " ".join(done.stdout.partition("Compete or cooperate?\n")[2].split())
    assert "the heads complement each other" in last
    assert "measuring all 3 groups of heads (--groups none leaves them out)" in done.stderr
    names = sorted(path.name for path in out.iterdir())
    tables = {"analysis.safetensors", "groups.csv", "heads.csv", "pairs.csv"}
    assert tables | {"pairs_s_acc.png", "pairs_s_acc.svg", "shapley.png"} <= set(names)
    assert len((out / "groups.csv").read_text().splitlines()) == 4
    none = run("analyze", tmp_path / "model", "--groups", "none", "--out", tmp_path / "none")
    assert "measuring all" not in none.stderr
    assert "Compete or cooperate?\nOn the answer, judged by s-acc" in none.stdout
    assert not (tmp_path / "none" / "groups.csv").exists()
    done = run("analyze", tmp_path / "model", "--out", tmp_path / "model.safetensors")
    assert done.returncode == 2
    assert "expected a directory, got a file" in done.stderr


@pytest.mark.slow
def test_view_writes_one_page_that_needs_no_internet(tmp_path):
    save_checkpoint(cooperative_model(), tmp_path / "model")
    page = tmp_path / "attention.html"
    done = run("view", tmp_path / "model", "0110=", "-o", page)
    assert done.returncode == 0, done.stderr
    assert f"written to {page}" in done.stdout
    plain = page.read_text()
    assert plain.count("var CircuitsVis=") == 1
    assert "before and after" not in plain
    done = run(
        "view",
        tmp_path / "model",
        "0110=",
        "-o",
        page,
        "--w01",
        "2",
        "--w02",
        "∞",
        "--heads",
        "0-1",
    )
    assert done.returncode == 0, done.stderr
    assert "before and after" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["0110"], "malformed sentence at position 4: expected '0', '1', '2' or '=', got the end"),
        (["0" * 5000 + "="], "(n_ctx)"),
        (["01=", "--w01", "-1"], "w01: expected None or a number from 0 to infinity, got -1.0"),
        (["01=", "--w02", "many"], "w02: expected a number from 0 to infinity ('inf'), got 'many'"),
        (["01=", "--w01", "0", "--w02", "0"], "say nothing about '1' against '2'"),
        (["01=", "--heads", "9"], "there is no head 9"),
        (["01=", "--heads", "x"], "heads: expected numbers"),
    ],
)
def test_view_refuses_what_cannot_be_shown(tmp_path, arguments, message):
    save_checkpoint(cooperative_model(), tmp_path / "model")
    done = run("view", tmp_path / "model", *arguments, "-o", tmp_path / "page.html")
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "page.html").exists()


def test_what_cannot_be_is_refused_before_any_work(tmp_path):
    many = build_model(ModelConfig(d_embed=20, n_heads=20))
    save_checkpoint(many, tmp_path / "model")
    done = run("view", tmp_path / "model", "01=", "-o", tmp_path / "missing" / "page.html")
    assert done.returncode == 2
    assert "expected a file in a directory that exists" in done.stderr
    done = run("analyze", tmp_path / "model", "--groups", "all")
    assert done.returncode == 2
    assert "20 heads have 2^20 - 1 groups: expected at most 18 heads" in done.stderr
    assert done.stdout == ""


def test_sweep_writes_figures_and_their_data(tmp_path):
    save_checkpoint(cooperative_model(), tmp_path / "model")
    done = run("sweep", tmp_path / "model", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    for ratio in ("w01", "w02"):
        table = pd.read_csv(tmp_path / "out" / f"sweep_{ratio}.csv")
        lines = pd.read_csv(tmp_path / "out" / f"sweep_{ratio}_heads.csv")
        assert len(lines) == 2 * len(table)
        means = lines.groupby(ratio)["s_acc"].mean()
        assert means.to_list() == pytest.approx(table["s_acc_mean"].to_list())
        for kind in ("png", "svg"):
            assert (tmp_path / "out" / f"sweep_{ratio}.{kind}").stat().st_size > 5000
    done = run("sweep", tmp_path / "model", "--out", tmp_path / "model.safetensors")
    assert done.returncode == 2
    assert "expected a directory, got a file" in done.stderr


# Tasks in files

DOCS = Path(__file__).parents[1] / "docs" / "command_line.md"


def example_of_docs(directory):
    """The task of the page about the command line, beside a model that it can be asked of."""
    (task,) = re.findall(r"```json\n(.*?)```", DOCS.read_text(), re.S)
    (directory / "task.json").write_text(task)
    save_checkpoint(model_of(n_layers=2), directory / "model")
    return json.loads(task)


def test_the_example_of_the_docs_runs_to_the_letter(tmp_path):
    example_of_docs(tmp_path)
    (commands,) = re.findall(r"```sh\n(count01-lens.*?)```", DOCS.read_text(), re.S)
    printed = []
    for command in commands.splitlines():
        program, *arguments = shlex.split(command)
        assert program == "count01-lens"
        done = run(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert len(re.findall(r"^[01]\.[0-3] ", printed[0], re.MULTILINE)) == 8
    assert "s_acc_long" in printed[0]
    assert (
        "a model with 8 heads in 2 layers on a task with 3 answers"
        in (tmp_path / "report.html").read_text()
    )
    page = (tmp_path / "prompt.html").read_text().replace(_bundle(), "")
    assert "<title>0 2 3 1 8</title>" in page
    assert "logit of 2 minus the mean of 2 others" in page
    page = (tmp_path / "other.html").read_text().replace(_bundle(), "")
    assert "layer 1 head 0" in page
    assert "layer 0 head 0" not in page


def test_a_task_in_a_file_gives_all_that_count01_does(tmp_path):
    example_of_docs(tmp_path)
    out = tmp_path / "out"
    files = [str(tmp_path / "model"), "--task", str(tmp_path / "task.json"), "--out", str(out)]
    done = CliRunner().invoke(app, ["analyze", *files])
    assert done.exit_code == 0, done.output
    names = {path.name for path in out.iterdir()}
    assert {"heads.csv", "pairs.csv", "analysis.safetensors", "lifts.png", "gains.svg"} <= names
    drawn = len(list(out.glob("*.png")))
    assert f"groups.csv, {drawn} figures as PNG and SVG, analysis.safetensors" in done.output
    assert len(pd.read_csv(out / "heads.csv")) == 8


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (("test", "tokens"), [[0, 9, 8]] * 4, "tokens: expected token ids of the model, 0 to 8"),
        (("test", "tokens"), [[0, 1]], "test.answers: expected one for each of 1 prompts, got 4"),
        (("test", "answers"), [1, 2, 3, "x"], "test.answers[3]: expected a token id"),
        (("choices",), [1, 2, 3, 40], "choices: expected token ids of the model, 0 to 8, got 40"),
        (("format",), 7, "format: expected 1, got 7"),
    ],
)
def test_a_bad_task_is_refused(tmp_path, monkeypatch, where, value, message):
    monkeypatch.chdir(tmp_path)
    task = inner = example_of_docs(tmp_path)
    for name in where[:-1]:
        inner = inner[name]
    inner[where[-1]] = value
    (tmp_path / "task.json").write_text(json.dumps(task))
    command = ["analyze", "model", "--task", "task.json", "--report", "report.html"]
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, ValueError)  # which `main` prints, with exit code 2
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected a sentence, or --task and --prompt, got both or neither"),
        (["0 1 8", "--task", "task.json"], "got both or neither"),
        (["--task", "task.json", "--prompt", "4"], "prompt: expected 0 to 3, the test prompts"),
        (["--task", "none.json"], "none.json: no such file"),
        (["abc"], "because the model has no tokenizer, got 'abc'"),
        (["0 1 99"], "prompt: expected token ids of the model, 0 to 8, got 99"),
        (["0 1 8", "--layer", "2"], "layer: expected 0 to 1, got 2"),
        (["0 1 8", "--w01", "1"], "expected the 8 tokens of Count01"),
    ],
)
def test_view_refuses_prompts_that_cannot_be_shown(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    example_of_docs(tmp_path)
    done = CliRunner().invoke(app, ["view", "model", *arguments, "-o", "page.html"])
    assert isinstance(done.exception, ValueError)
    assert message in str(done.exception)
    assert not (tmp_path / "page.html").exists()


@pytest.mark.slow
def test_compare_puts_checkpoints_side_by_side(tmp_path):
    config = ModelConfig(d_embed=4, n_heads=2)
    for seed, run_name in enumerate(("a", "b")):
        (tmp_path / run_name).mkdir()
        save_checkpoint(build_model(config, seed=seed), tmp_path / run_name / "seed-0")
    paths = [tmp_path / "a" / "seed-0", tmp_path / "b" / "seed-0.safetensors"]
    done = run("compare", *paths, "-o", tmp_path / "compare.html")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("On the answer, the heads of these 2 models are ")
    models = [line.split()[0] for line in done.stdout.splitlines() if "/seed-0 " in line]
    assert models[:2] == ["a/seed-0", "b/seed-0"]
    assert f"written to {tmp_path / 'compare.html'}: open it in a browser" in done.stdout
    assert "Heads of 2 models side by side" in (tmp_path / "compare.html").read_text("utf-8")
    for arguments, message in (
        ([paths[0], paths[0], "-o", tmp_path / "x.html"], "checkpoints: expected each one once"),
        ([paths[0], "-o", tmp_path / "no" / "x.html"], "expected a file in a directory"),
        ([paths[0], tmp_path / "none", "-o", tmp_path / "x.html"], "no such file"),
    ):
        refused = run("compare", *arguments)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert message in refused.stderr
        assert not (tmp_path / "x.html").exists()
