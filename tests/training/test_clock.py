import time

import jax
import jax.numpy as jnp
import pytest

from pods_jax.training.metrics import PhaseClock


def test_phases_add_up_and_are_taken_once():
    clock = PhaseClock()
    for _ in range(2):
        with clock.phase("sleep"):
            time.sleep(0.05)
    assert clock.take()["sleep"] == pytest.approx(0.1, abs=0.05)
    assert clock.take() == {}


def test_seconds_of_another_thread_are_booked_beside_a_phase():
    clock = PhaseClock()
    with clock.phase("sleep"):
        time.sleep(0.05)
    clock.add("ahead", 2.0)
    clock.add("ahead", 1.0)
    seconds = clock.take()
    assert seconds["ahead"] == 3.0
    assert seconds["sleep"] == pytest.approx(0.05, abs=0.05)


def test_a_phase_within_another_is_counted_once():
    slow_to_compile = jax.jit(lambda x: sum(jnp.cos(x * i) @ jnp.sin(x + i) for i in range(150)))
    clock, start = PhaseClock(), time.perf_counter()
    with clock.phase("outer"):
        time.sleep(0.05)
        with clock.phase("inner"):
            time.sleep(0.1)
            slow_to_compile(jnp.ones((8, 8))).block_until_ready()
    elapsed, seconds = time.perf_counter() - start, clock.take()
    assert sum(seconds.values()) == pytest.approx(elapsed, abs=0.02)
    assert seconds["inner"] >= 0.1
    assert 0.05 <= seconds["outer"] < elapsed - 0.1
    assert seconds["compile"] > 0.05


def test_compilation_is_kept_apart():
    slow_to_compile = jax.jit(lambda x: sum(jnp.sin(x * i) @ jnp.cos(x + i) for i in range(150)))
    x, clock = jnp.ones((8, 8)), PhaseClock()
    for name in ("first", "second"):
        with clock.phase(name):
            slow_to_compile(x).block_until_ready()
    seconds = clock.take()
    assert seconds["compile"] > 5 * seconds["second"]
    assert seconds["compile"] > 0.05
