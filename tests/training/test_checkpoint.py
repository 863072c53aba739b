"""Checkpoints: those that are kept, the cost of damaged and half-written ones, and a full disk's one line."""

import resource
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pods_jax.errors import UserError
from pods_jax.learner import TrainState
from pods_jax.training.checkpoint import Checkpoints, fingerprint

# Orbax leaves coroutines behind when one of those that read or write beside them fails.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

jitted = jax.jit(fingerprint)


def state_at(step):
    params = {"w": jax.random.normal(jax.random.key(step), (64, 64)), "b": jnp.arange(3, dtype=jnp.bfloat16)}
    return TrainState(params, {"mu": jnp.zeros(3)}, jnp.int32(step))


def saved(folder, steps, keep=2, best=None):
    checkpoints = Checkpoints(folder, keep)
    for step in steps:
        checkpoints.save(step, state_at(step), {"place": step, "mean": 0.1}, best)
    checkpoints.close()
    return checkpoints


def restored(folder):
    """What comes back, and the warnings."""
    warnings = []
    checkpoints = Checkpoints(folder, 2)
    found = checkpoints.restore(state_at(0), warnings.append)
    checkpoints.close()
    return found, warnings


def files_of(folder, step):
    return sorted(f for f in (folder / "checkpoints" / str(step)).rglob("*") if f.is_file())


def steps_in(folder):
    return sorted(int(p.name) for p in (folder / "checkpoints").iterdir() if p.name.isdigit())


def test_a_checkpoint_comes_back(tmp_path):
    saved(tmp_path, [3, 5])
    found, warnings = restored(tmp_path)
    assert (found.step, found.host, warnings) == (5, {"place": 5, "mean": 0.1}, [])
    jax.tree.map(np.testing.assert_array_equal, found.state, state_at(5))


def test_host_state_may_hold_arrays_to_the_bit(tmp_path):
    buffered = {"logprobs": np.float32([[np.nan, -0.0], [np.inf, 1e-45]]), "uids": np.array([2**40, 1])}
    host = {"allocator": {"buffer": [buffered], "empty": np.zeros((0, 3)), "gain": float("nan")}}
    for folder, content in ((tmp_path / "full", host), (tmp_path / "none", {"allocator": {}})):
        checkpoints = Checkpoints(folder, 2)
        checkpoints.save(1, state_at(1), content)
        checkpoints.close()
        found, warnings = restored(folder)
        assert not warnings
        np.testing.assert_equal(found.host, content)
        for group in found.host["allocator"].get("buffer", ()):
            assert {k: (v.dtype, v.tobytes()) for k, v in group.items()} == {
                k: (v.dtype, v.tobytes()) for k, v in buffered.items()
            }


def test_there_may_be_none(tmp_path):
    assert restored(tmp_path) == (None, [])


@pytest.mark.parametrize(("best", "kept"), [(None, [5, 6]), (2, [2, 5, 6]), (6, [5, 6])])
def test_the_newest_and_the_best_are_kept(tmp_path, best, kept):
    saved(tmp_path, range(1, 7), best=best)
    assert steps_in(tmp_path) == kept


def largest(folder):
    return max(files_of(folder, 4), key=lambda f: f.stat().st_size)


def truncate(folder):
    file = largest(folder)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip_a_bit(folder):
    file = largest(folder)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


def change_a_digit(folder):
    file = folder / "checkpoints" / "4" / "host" / "metadata"
    file.write_text(file.read_text().replace("4", "7"))


def empty(folder):
    for file in files_of(folder, 4):
        file.unlink()


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, change_a_digit, empty])
def test_a_damaged_checkpoint_is_skipped_with_a_line(tmp_path, damage):
    saved(tmp_path, [2, 4])
    damage(tmp_path)
    found, warnings = restored(tmp_path)
    assert (found.step, found.host["place"]) == (2, 2)
    jax.tree.map(np.testing.assert_array_equal, found.state, state_at(2))
    assert len(warnings) == 1
    assert warnings[0].startswith("warning  the checkpoint at step 4 is damaged and skipped (")
    assert "\n" not in warnings[0]


def test_too_little_memory_is_no_damage(tmp_path, monkeypatch):
    def full(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1073741824 bytes.")

    saved(tmp_path, [2, 4])
    monkeypatch.setattr(Checkpoints, "_read", full)
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        restored(tmp_path)


def test_any_file_may_be_damaged(tmp_path):
    """Whatever is cut short: what comes back is step 4 as it was, or step 2."""
    saved(tmp_path / "whole", [2, 4])
    for i, file in enumerate(files_of(tmp_path / "whole", 4)):
        copy = tmp_path / str(i)
        shutil.copytree(tmp_path / "whole", copy)
        cut = copy / file.relative_to(tmp_path / "whole")
        cut.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        found, _ = restored(copy)
        assert found.step in (2, 4)
        jax.tree.map(np.testing.assert_array_equal, found.state, state_at(found.step))
        assert found.host["place"] == found.step


def test_what_is_damaged_is_set_aside_and_written_again(tmp_path):
    saved(tmp_path, [2, 4])
    truncate(tmp_path)
    checkpoints = Checkpoints(tmp_path, 2)
    checkpoints.set_aside_after(checkpoints.restore(state_at(0), print).step)
    checkpoints.save(4, state_at(4), {"place": 4})
    checkpoints.close()
    assert restored(tmp_path)[0].step == 4
    assert (tmp_path / "damaged_checkpoints" / "4").is_dir()


def test_a_half_written_checkpoint_is_not_seen(tmp_path):
    saved(tmp_path, [2, 4])
    whole = tmp_path / "checkpoints" / "4"
    whole.rename(whole.with_name("4.orbax-checkpoint-tmp"))
    found, warnings = restored(tmp_path)
    assert (found.step, warnings) == (2, [])
    saved(tmp_path, [4])
    assert restored(tmp_path)[0].step == 4
    assert steps_in(tmp_path) == [2, 4]
    assert not list((tmp_path / "checkpoints").glob("*tmp*"))


def test_when_all_are_damaged_nothing_is_started_anew(tmp_path):
    saved(tmp_path, [4])
    truncate(tmp_path)
    with pytest.raises(UserError, match="every checkpoint is damaged"):
        restored(tmp_path)


def test_a_damaged_one_that_was_asked_for_is_told(tmp_path):
    saved(tmp_path, [2, 4])
    truncate(tmp_path)
    warnings = []
    checkpoints = Checkpoints(tmp_path, 2)
    with pytest.raises(UserError, match=r"checkpoints: the checkpoint at step 4 is damaged \(.*\); choose another$"):
        checkpoints.restore(state_at(0), warnings.append, step=4)
    assert checkpoints.restore(state_at(0), warnings.append, step=2).step == 2
    assert checkpoints.restore(state_at(0), warnings.append, step=3) is None
    assert not warnings
    checkpoints.close()


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path, capfd):
    saved(tmp_path, [2])
    checkpoints = Checkpoints(tmp_path, 2)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, before[1]))
    try:
        checkpoints.save(4, state_at(4), {})
        with pytest.raises(UserError, match=r"checkpoints: a checkpoint cannot be written \(File too large\)"):
            checkpoints.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "Traceback" not in capfd.readouterr().err
    assert restored(tmp_path)[0].step == 2


@given(hnp.arrays(np.uint32, (2, 3, 5)), st.integers(0, 29), st.integers(0, 31))
def test_a_fingerprint_tells_a_single_changed_bit(bits, place, bit):
    changed = bits.copy()
    changed.reshape(-1)[place] ^= np.uint32(1 << bit)
    assert jitted(changed.view(np.float32)) != jitted(bits.view(np.float32))


def test_a_fingerprint_is_the_sum_it_says():
    bits = np.random.default_rng(0).integers(0, 2**32, (3, 4), dtype=np.uint32)
    total = sum(int(b) * (2 * i + 1) for i, b in enumerate(bits.ravel()))
    assert int(fingerprint(jnp.asarray(bits.view(np.float32)))) == total % 2**32


def test_a_fingerprint_tells_swapped_values():
    assert fingerprint(jnp.float32([1, 2])) != fingerprint(jnp.float32([2, 1]))
