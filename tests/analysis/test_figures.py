import json
import subprocess
import sys

from pods_jax.analysis.figures import learning_curve

CONFIG = {
    "data": {"name": "toy"},
    "selection": {"rule": "max_variance", "num_kept": 4},
    "rollout": {"num_generations": 8},
    "seed": 0,
}


def test_a_learning_curve_of_a_run_still_going_on(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "eval.jsonl").write_text('{"step": 0, "wall_time_s": 0.0, "accuracy": 0.1, "greedy_accuracy": 0.2}\n')
    learning_curve(tmp_path, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_analysis_imports_no_jax():
    code = """
import pkgutil, sys, importlib, pods_jax.analysis
for module in pkgutil.iter_modules(pods_jax.analysis.__path__):
    importlib.import_module(f"pods_jax.analysis.{module.name}")
assert "jax" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
