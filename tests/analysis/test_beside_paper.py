"""Own runs, made up, in the axes of the authors'."""

import math
from pathlib import Path

import pytest
from made_runs import make_run

from pods_jax.analysis.beside_paper import draw_beside
from pods_jax.analysis.published_file import reader
from pods_jax.errors import UserError

READ = reader(Path(__file__).parents[2] / "docs/published/pods.json")


def test_own_runs_are_drawn_and_timed_in_the_unit_of_the_paper(tmp_path):
    for seed in range(2):
        make_run(tmp_path / "a" / str(seed), n=64, m=16, rule="max_variance", seed=seed, rate=1.0)
    make_run(tmp_path / "b", n=16, m=16, rule="all", seed=0, rate=0.01)
    drawn = tmp_path / "own.png"
    found = draw_beside("h100s_main", READ, [tmp_path / "a", str(tmp_path / "b")], drawn)
    assert drawn.read_bytes().startswith(b"\x89PNG")
    assert found["unit"] == "min"
    assert found["threshold"] == pytest.approx(0.8173, abs=1e-4)
    seconds = 60 * found["reached"]["own PODS"]
    assert 0.1 + 0.8 * (1 - math.exp(-seconds)) == pytest.approx(found["threshold"], abs=0.03)
    assert math.isinf(found["reached"]["own GRPO"])
    assert draw_beside("gsm8k_main", READ, [tmp_path / "a"], drawn)["unit"] == "h"  # of runs that last seconds


def test_what_is_not_there_is_told(tmp_path):
    with pytest.raises(UserError, match=r"no figure 'gsm8k' \(there are gsm8k_main"):
        draw_beside("gsm8k", READ, [], tmp_path / "own.png")
    with pytest.raises(UserError, match="has no workdir"):
        draw_beside("gsm8k_main", READ, [tmp_path], tmp_path / "own.png")
