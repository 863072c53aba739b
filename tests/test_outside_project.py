"""The project in docs/extending.md that is no fork: parts of every family in a package of its own."""

import json
import os
import re
import subprocess
from pathlib import Path

import forked
import jax
import pytest
import tokenizers

from pods_jax.analysis.runs import read_run
from pods_jax.models import Decoder, ModelConfig, init_params, save_pretrained

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs" / "extending.md").read_text()


def save_model(folder: Path, model_type: str) -> None:
    """A random model of six letters, of a model type that this package does not know."""
    vocab = {c: i for i, c in enumerate("?<abcdef")}
    config = ModelConfig(
        vocab_size=len(vocab), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8,
    )  # fmt: skip
    model = Decoder(config)
    save_pretrained(folder, model, init_params(model, jax.random.key(0)))
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="?"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<", "unk_token": "?"}))
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(written | {"model_type": model_type}))


def run(script: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess:
    """A command of experiments/ in another folder, with this package on the path as if it were installed."""
    return forked.run([ROOT / "experiments" / script, *arguments], cwd, os.environ | {"PYTHONPATH": str(ROOT)})


@pytest.fixture
def project(tmp_path):
    files = re.findall(r"```python\n# my_project/(\S+)\n(.*?)```", GUIDE, re.DOTALL)
    assert [name for name, _ in files] == ["house/parts.py", "house/rewards.py", "config.py"]
    for name, code in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
    save_model(tmp_path / "model", "house_llama")
    return tmp_path


def test_a_project_of_its_own_trains_and_is_evaluated(project):
    done = run("train.py", "--config", "config.py", "--workdir", "runs/house", cwd=project)
    assert done.returncode == 0, done.stderr
    record = read_run(project / "runs" / "house")
    assert len(record.metrics) == 2
    assert "rewards/brevity/mean" in record.metrics[0]
    elsewhere = project / "elsewhere"
    elsewhere.mkdir()
    arguments = ("--workdir", "../runs/house", "--config.model.path=model", "--json")
    refused = run("evaluate.py", *arguments, cwd=elsewhere)
    assert refused.returncode == 2
    assert "no model at 'model'" in refused.stderr
    done = run("evaluate.py", "--workdir", "runs/house", "--json", cwd=project)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["accuracy"] == record.evals[-1]["accuracy"]


def test_what_is_wrong_in_a_project_is_one_line(project):
    (project / "house" / "rewards.py").write_text("import nothing_there\n")
    done = run("train.py", "--config", "config.py", "--workdir", "runs/house", cwd=project)
    assert done.returncode == 2
    line = done.stderr.splitlines()[-1]
    assert re.search(r"config\.py:2: ModuleNotFoundError: .*'nothing_there' \(.*house/rewards\.py:1\)", line)
