import time

import jax
import jax.numpy as jnp
import pytest

from pods_jax.training.clock import PhaseClock


def test_phases_add_up_and_are_taken_once():
    clock = PhaseClock()
    for _ in range(2):
        with clock.phase("sleep"):
            time.sleep(0.05)
    assert clock.take()["sleep"] == pytest.approx(0.1, abs=0.05)
    assert clock.take() == {}


def test_compilation_is_kept_apart():
    slow_to_compile = jax.jit(lambda x: sum(jnp.sin(x * i) @ jnp.cos(x + i) for i in range(150)))
    x, clock = jnp.ones((8, 8)), PhaseClock()
    for name in ("first", "second"):
        with clock.phase(name):
            slow_to_compile(x).block_until_ready()
    seconds = clock.take()
    assert seconds["compile"] > 5 * seconds["second"]
    assert seconds["compile"] > 0.05
