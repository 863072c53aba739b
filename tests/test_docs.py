"""The guides are followed to the letter: what they say to write is written, and trains."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from pods_jax.analysis.runs import read_run
from pods_jax.config.schema import to_dict

ROOT = Path(__file__).parents[1]
RUN = """
import json, sys
from pods_jax.config.schema import from_mapping
from pods_jax.training import Reporter, train
from pods_jax.config.validate import violations

config, problems = from_mapping(json.loads(sys.argv[1]))
assert not problems + violations(config), problems + violations(config)
train(config, sys.argv[2], Reporter())
"""


def test_the_guide_to_extending_works(tiny, tmp_path):
    shutil.copytree(ROOT / "pods_jax", tmp_path / "pods_jax")
    guide = "".join((ROOT / "docs" / name).read_text() for name in ("extending.md", "allocation.md"))
    files = re.findall(r"```python\n# (pods_jax/\S+)\n(.*?)```", guide, re.DOTALL)
    assert len(files) == 5
    for name, code in files:
        (tmp_path / name).write_text(code)
    for key, value in re.findall(r"`--config\.(\S+)=(\w+)", guide):
        section, name = key.split(".")
        tiny[section][name] = value
    tiny.data.options = {}
    tiny.training.num_steps = 2
    command = [sys.executable, "-c", RUN, json.dumps(tiny.to_dict()), str(tmp_path / "run")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    record = read_run(tmp_path / "run")
    assert record.config["selection"]["rule"] == "extremes"
    assert record.config["data"]["name"] == "copying"
    assert record.config["allocation"]["name"] == "nearest_half"
    assert record.config["objective"]["loss_type"] == "sqrt_length"
    assert len(record.metrics) == 2


def test_paths_in_the_docs_exist():
    for doc in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for path in re.findall(r"`((?:configs|docs|experiments|pods_jax)/[\w/]+\.\w+)", doc.read_text()):
            assert (ROOT / path).exists() or path in doc.read_text().partition("# " + path)[1], (doc, path)
        for path in re.findall(
            r"`((?:data|allocation|rollout|training|selection|objective|learner|rewards)/\w+\.py)", doc.read_text()
        ):
            assert (ROOT / "pods_jax" / path).exists(), (doc, path)


def test_the_key_table_is_the_config():
    """The README points to config.py for the meaning of every key: each section there has a docstring."""
    import pods_jax.config.schema as config

    for name in to_dict(config.Config()):
        section = getattr(config.Config(), name)
        assert name == "seed" or type(section).__doc__
