import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.rollout.blocks import arrange, block_size, per_block
from pods_jax.rollout.buckets import bucket

COUNTS = st.lists(st.integers(1, 9), min_size=1, max_size=12)


@given(COUNTS, st.integers(1, 9), st.integers(1, 4))
def test_every_rollout_has_one_place_on_a_device_that_has_its_prompt(counts, size, devices):
    layout = arrange(counts, size, devices)
    places = [(p, r) for p, rows in zip(layout.groups, layout.rows, strict=True) for r in rows if r >= 0]
    assert sorted(places) == [(p, r) for p, count in enumerate(counts) for r in range(count)]
    assert (layout.rows[layout.groups < 0] < 0).all()
    found = layout.prompts
    if layout.owners is not None:
        found = np.take_along_axis(found.reshape(devices, -1), layout.owners, 1).ravel()
    real = layout.groups >= 0
    np.testing.assert_array_equal(found[real], layout.groups[real])


@given(COUNTS, st.integers(1, 9), st.integers(1, 4))
def test_devices_share_alike_and_sizes_are_buckets(counts, size, devices):
    layout = arrange(counts, size, devices)
    blocks = sum(-(-count // size) for count in counts)
    assert layout.rows.shape == (devices * bucket(-(-blocks // devices)), size)
    assert layout.prompts.shape[0] % devices == 0
    assert bucket(layout.prompts.shape[0] // devices) == layout.prompts.shape[0] // devices


@given(COUNTS, st.integers(1, 9), st.integers(1, 4))
def test_values_come_back_in_their_groups(counts, size, devices):
    layout = arrange(counts, size, devices)
    values = 100 * layout.groups[:, None] + layout.rows
    grouped = layout.grouped(values, (len(counts), max(counts)), -1)
    for p, count in enumerate(counts):
        assert grouped[p].tolist() == [100 * p + r if r < count else -1 for r in range(max(counts))]


@given(st.integers(1, 200), st.integers(1, 50))
def test_equal_groups_are_one_block_each_and_take_nothing_from_elsewhere(n, num_prompts):
    assert block_size([n] * num_prompts) == n
    layout = arrange([n] * num_prompts, n)
    assert layout.owners is None
    assert layout.prompts.tolist() == layout.groups.tolist()


def test_pilots_and_commits_waste_nothing():
    counts = [32] * 384 + [96] * 128
    assert block_size(counts) == 32
    assert arrange(counts, 32).rows.size == sum(counts)


@given(COUNTS)
def test_the_block_size_does_not_depend_on_how_often_a_count_occurs(counts):
    assert block_size(counts) == block_size(sorted(set(counts)))
    assert 1 <= block_size(counts) <= max(counts)


def test_per_block_looks_among_a_devices_own_prompts():
    prompts = jnp.array([[1, 2], [3, 4], [5, 6], [7, 8]])
    assert per_block(prompts, jnp.array([[0, 1, 1], [0, 0, 1]]))[:, 0].tolist() == [1, 3, 3, 5, 5, 7]
