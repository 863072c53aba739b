"""The commands of docs/own_data.md, run in their order with a tiny model in place of SmolLM2."""

import re
import shlex
from pathlib import Path

import pytest
from test_outside_project import run, save_model

from pods_jax.analysis.runs import read_run
from pods_jax.io import read_jsonl

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "own_data.md").read_text()
SMALL = [
    "model.path=model", "training.num_steps=2", "training.eval_every_steps=0", "rollout.num_prompts=2",
    "rollout.num_generations=4", "selection.num_kept=2", "optimizer.micro_batch_size_per_device=None",
    "rollout.max_completion_length=8", "evaluation.num_prompts=8", "evaluation.num_samples=1",
]  # fmt: skip


def commands() -> list[list[str]]:
    blocks = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def shrunk(words: list[str]) -> list[str]:
    """The command with the tiny model, in seconds."""
    words = [str(ROOT / word) if word.startswith("configs/") else word for word in words]
    words = ["model" if word == "smollm2-135m" else word for word in words]
    return [*words, *(f"--config.{o}" for o in SMALL)] if "--config" in words and "--model" not in words else words


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    for name, code in re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE, re.DOTALL):
        (folder / name).write_text(code)
    save_model(folder / "model", "llama")
    return folder


def test_the_commands_of_the_page_work(folder):
    outputs = []
    for tool, script, *arguments in commands():
        assert tool == "python"
        path = folder / script if (folder / script).exists() else Path(script).name
        done = run(str(path), *shrunk(arguments), cwd=folder)
        assert done.returncode == 0, (script, arguments, done.stderr)
        outputs.append(done.stdout)
    assert "problems.csv" in outputs[1]
    assert "nothing was trained or written" in outputs[1]
    record = read_run(folder / "runs" / "own")
    assert record.config["data"]["options"]["kind"] == "level"
    assert {"accuracy/easy", "accuracy/hard"} & record.evals[-1].keys()
    rows = read_jsonl(folder / "runs" / "predictions.jsonl")
    assert len(rows) == 16
    assert {row["kind"] for row in rows} <= {"easy", "hard"}
    assert (folder / "exported" / "own" / "model.safetensors").is_file()
    assert "rewards/careful/mean" in read_run(folder / "runs" / "own_reward").metrics[0]


def test_the_error_of_the_page_is_the_error(folder):
    assert run(str(folder / "make_problems.py"), cwd=folder).returncode == 0
    said = re.search(r"```\n(error: .*)\n```", PAGE)[1]
    arguments = ["--config", "configs/own_data.py", "--workdir", "runs/no", "--config.data.path=problems.csv"]
    done = run("train.py", *shrunk([*arguments, "--config.data.options.prompt=qestion"]), cwd=folder)
    assert done.returncode == 2
    assert done.stderr.strip() == said
    assert not (folder / "runs" / "no").exists()
