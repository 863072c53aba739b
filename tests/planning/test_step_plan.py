"""The compiler's own words on memory; all else of a plan is tested in test_plan_command."""

import jax
import jax.numpy as jnp
import pytest

from pods_jax.config.schema import from_mapping
from pods_jax.planning.chips import CHIPS
from pods_jax.planning.collectives import Traffic
from pods_jax.planning.run_shapes import Program, run_shapes
from pods_jax.planning.step_plan import compiled_memory, least_times, overflow

IN_ALL = (
    "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. "
    "Used 20.72G of 15.75G hbm. Exceeded hbm capacity by 4.97G."
)
TEMPORARIES = (
    "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries (20.72G) exceeds "
    "available HBM (15.75G)."
)


@pytest.mark.parametrize("message", [IN_ALL, TEMPORARIES])
def test_a_program_that_is_too_large_says_how_large(message):
    memory = overflow(message, beside=5)
    assert not memory.fits
    assert memory.temporaries == int(20.72 * 2**30)
    assert memory.peak == memory.temporaries + 5


def test_other_errors_are_none_of_memory():
    assert overflow("INTERNAL: something else", beside=0) is None


def test_a_donated_argument_is_counted_once():
    """1 MB that is updated in place, beside 4 kB that is not."""

    def step(state, gradient):
        return state + gradient.sum(), gradient.sum(0)

    shapes = jnp.zeros((512, 512)), jnp.zeros((1024, 2))
    donated, kept = (
        compiled_memory(jax.jit(step, donate_argnums=which).lower(*shapes).compile(), beside=7) for which in (0, ())
    )
    assert donated.arguments == kept.arguments >= 2**20
    assert donated.outputs < 1000
    assert kept.outputs >= 2**20
    assert kept.peak - donated.peak == pytest.approx(2**20, abs=2**16)
    assert donated.peak == donated.arguments + donated.outputs + donated.temporaries + donated.code + 7


def test_the_plan_of_muon_holds_one_moment_of_the_matrices_of_layers(tiny):
    held = {}
    for name in ("adamw", "muon"):
        tiny.optimizer.name = name
        held[name] = run_shapes(from_mapping(tiny)[0], jax.devices()[:1])
    matrices = sum(4 * x.size for x in jax.tree.leaves(held["muon"].state.params["layers"]) if len(x.shape) > 2)
    saved = held["adamw"].held()["optimizer state"] - held["muon"].held()["optimizer state"]
    assert saved == pytest.approx(matrices, abs=16)  # two counts more


@pytest.mark.parametrize("runs", [1, 3])
def test_the_least_time_of_a_step_is_that_of_all_runs(runs):
    chip = CHIPS["v5e"]
    program = Program("update", lambda: None, {}, {}, 0, flops=8 * chip.flops_per_s, runs=runs)
    sent = {"all-gather": Traffic(1, 2 * chip.link_bytes_per_s), "all-reduce": Traffic(1, 3 * chip.link_bytes_per_s)}
    moved = 3 * chip.hbm_bytes_per_s
    times = least_times(program, sent, moved, num_devices=4, chip=chip)
    assert times == pytest.approx({"compute": 2 * runs, "memory": 3 * runs, "interconnect": 5 * runs})
