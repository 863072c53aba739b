"""Out of memory is one line with the keys that help."""

import jax
import jax.numpy as jnp
import pytest

from pods_jax.config.schema import from_mapping
from pods_jax.errors import UserError
from pods_jax.training import Reporter, evaluate_checkpoint, train
from pods_jax.training import run as run_module
from pods_jax.training.memory import KEYS, naming_keys_for_memory
from pods_jax.training.workdir import FREE


def built(values):
    return from_mapping(values)[0]


def take_a_petabyte(*_, **__):
    return jax.block_until_ready(jax.jit(lambda: jnp.zeros((2**20, 2**28)))())


def take_more_than_numpy_has(*_, **__):
    raise MemoryError


@pytest.mark.parametrize("take", [take_a_petabyte, take_more_than_numpy_has])
def test_the_keys_are_named_with_their_values(tiny, take):
    tiny.rollout.max_cache_bytes_per_device, tiny.model.remat = 12345, "full"
    with pytest.raises(UserError) as told, naming_keys_for_memory(built(tiny)):
        take()
    text = str(told.value)
    assert text.startswith("out of memory (")
    assert "\n" not in text
    for part in (
        "rollout.max_cache_bytes_per_device = 12345",
        "optimizer.micro_batch_size_per_device = None",
        "model.remat = 'full'",
        "model.attention = 'chunked'",
    ):
        assert part in text


def test_other_errors_pass(tiny):
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"), naming_keys_for_memory(built(tiny)):
        raise jax.errors.JaxRuntimeError("INTERNAL: no memory of why")
    with pytest.raises(ZeroDivisionError), naming_keys_for_memory(built(tiny)):
        raise ZeroDivisionError


def test_a_run_may_go_on_with_other_values_of_them():
    assert all(key.startswith(FREE) for keys in KEYS.values() for key in keys)


def test_a_run_whose_update_does_not_fit_says_so_and_goes_on(tiny, tmp_path, monkeypatch):
    tiny.training.num_steps, tiny.training.eval_every_steps = 2, 0
    with monkeypatch.context() as patch:
        patch.setattr(run_module, "update_function", lambda *_: take_a_petabyte)
        with pytest.raises(UserError, match=r"out of memory .* optimizer.micro_batch_size_per_device = None"):
            train(built(tiny), tmp_path / "run", Reporter())
    tiny.optimizer.micro_batch_size_per_device = 4
    assert train(built(tiny), tmp_path / "run", Reporter())["steps"] == 2
    monkeypatch.setattr("pods_jax.training.evaluation.evaluate", take_a_petabyte)
    with pytest.raises(UserError, match=r"out of memory .* evaluation.batch_size = 64"):
        evaluate_checkpoint(built(tiny), tmp_path / "run", Reporter())
