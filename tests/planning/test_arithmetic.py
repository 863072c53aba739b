"""Plans for GPUs that are not there."""

import pytest

from pods_jax.config.schema import Config
from pods_jax.errors import UserError
from pods_jax.planning import arithmetic
from pods_jax.planning.arithmetic import estimates, gpus
from pods_jax.planning.chips import CHIPS
from pods_jax.planning.run_shapes import Program


def test_topologies_of_gpus():
    assert gpus("H200:8") == ("H200", 8)
    assert gpus("A100-40GB:2") == ("A100-40GB", 2)
    assert gpus("v5e:4x2") is None
    assert gpus("local") is None
    for wrong in ("H200", "H200:0", "H200:2x4"):
        with pytest.raises(UserError, match="give the number of GPUs, as in H200:8"):
            gpus(wrong)


@pytest.mark.parametrize(("name", "reads"), [("sampling", 3 * (5 * (100 + 20) - 50)), ("update", 0)])
def test_an_estimate_is_of_all_runs_of_a_step_on_each_device(monkeypatch, name, reads):
    program = Program(
        name, lambda: None, {"weights": 100}, {"KV cache": 20}, beside=7, flops=6e12, runs=3, unknown_trips=5,
        spared_bytes=50.0,
    )  # fmt: skip
    monkeypatch.setattr(arithmetic, "run_shapes", lambda config, devices: None)
    monkeypatch.setattr(arithmetic, "programs", lambda run: [program])
    (found,) = estimates(Config(), "H200", [None] * 4)
    assert found.compute_s == pytest.approx(3 * 6e12 / 4 / CHIPS["H200"].flops_per_s)
    assert found.memory_s == pytest.approx(reads / CHIPS["H200"].hbm_bytes_per_s)
    assert found.bytes == 100 + 20 + 7
