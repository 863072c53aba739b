import subprocess
import sys

import pytest

from pods_jax.errors import UserError
from pods_jax.rewards import VERIFIERS, verify

HEAVY = {"jax", "transformers", "numpy", "sympy", "reasoning_gym", "datasets"}


def test_importing_rewards_loads_nothing_heavy():
    script = "import sys, pods_jax.rewards; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    assert not HEAVY & set(loaded.stdout.split())


def test_tasks_say_where_they_may_run():
    assert {name for name in ("exact", "gsm8k", "reasoning_gym") if VERIFIERS[name].bounded} == {"exact", "gsm8k"}


def test_an_unknown_task_is_named():
    with pytest.raises(UserError, match="unknown task 'gsm8': did you mean 'gsm8k'"):
        verify("1", "1", "gsm8")
