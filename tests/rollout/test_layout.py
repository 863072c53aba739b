import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.buckets import bucket
from pods_jax.rollout.layout import block_size, compacted, layouts, take

COUNTS = st.lists(st.integers(1, 9), min_size=1, max_size=12)


def passes(counts, *args):
    """Layouts of whole groups."""
    return layouts([np.arange(count) for count in counts], *args)


@given(COUNTS, st.integers(1, 9), st.integers(1, 4))
def test_every_rollout_has_one_place_on_a_device_that_has_its_prompt(counts, size, devices):
    (layout,) = passes(counts, size, devices)
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
    (layout,) = passes(counts, size, devices)
    blocks = sum(-(-count // size) for count in counts)
    assert layout.rows.shape == (devices * bucket(-(-blocks // devices)), size)
    assert layout.prompts.shape[0] % devices == 0
    assert bucket(layout.prompts.shape[0] // devices) == layout.prompts.shape[0] // devices


@given(COUNTS, st.integers(1, 9), st.integers(1, 4))
def test_values_come_back_in_their_groups(counts, size, devices):
    (layout,) = passes(counts, size, devices)
    values = 100 * layout.groups[:, None] + layout.rows
    grouped = np.full((len(counts), max(counts)), -1)
    layout.put(values, grouped)
    for p, count in enumerate(counts):
        assert grouped[p].tolist() == [100 * p + r if r < count else -1 for r in range(max(counts))]


@given(st.integers(1, 200), st.integers(1, 50))
def test_equal_groups_are_one_block_each_and_take_nothing_from_elsewhere(n, num_prompts):
    assert block_size([n] * num_prompts, n) == n
    (layout,) = passes([n] * num_prompts, n)
    assert layout.owners is None
    assert layout.prompts.tolist() == layout.groups.tolist()


def test_pilots_and_commits_waste_nothing():
    counts = [32] * 384 + [96] * 128
    assert block_size(counts, 96) == 32
    assert passes(counts, 32)[0].rows.size == sum(counts)


@given(COUNTS)
def test_the_block_size_does_not_depend_on_how_often_a_count_occurs(counts):
    assert block_size(counts, 9) == block_size(sorted(set(counts)), 9)
    assert 1 <= block_size(counts, 4) <= min(max(counts), 4)


def test_take_looks_among_a_devices_own_prompts():
    prompts = jnp.array([[1, 2], [3, 4], [5, 6], [7, 8]])
    assert take(prompts, jnp.array([[0, 1, 1], [0, 0, 1]]))[:, 0].tolist() == [1, 3, 3, 5, 5, 7]


@given(COUNTS, st.integers(1, 4), st.integers(1, 3), st.integers(1, 8))
def test_passes_divide_the_rollouts_and_none_has_more_blocks_than_fit(counts, size, devices, most):
    found = passes(counts, size, devices, most)
    places = [
        (p, r) for layout in found for p, rows in zip(layout.groups, layout.rows, strict=True) for r in rows if r >= 0
    ]
    assert sorted(places) == [(p, r) for p, count in enumerate(counts) for r in range(count)]
    assert all(len(layout.groups) <= most * devices for layout in found)


@given(COUNTS, st.integers(1, 4), st.integers(1, 3), st.randoms(use_true_random=False))
def test_compaction_moves_the_live_rollouts_and_their_prompts(counts, size, devices, random):
    (layout,) = passes(counts, size, devices)
    live = (layout.rows >= 0) & np.array([[random.random() < 0.4 for _ in range(size)] for _ in layout.rows])
    moved, origins, rows = compacted(layout, live, devices)
    assert named(moved) == sorted(np.where(live, 100 * layout.groups[:, None] + layout.rows, -1)[live].tolist())
    if origins is None:
        return
    assert moved.rows.shape[0] < layout.rows.shape[0]
    real = moved.rows >= 0
    per_device = layout.groups.reshape(devices, -1), layout.rows.reshape(devices, -1)
    groups, numbers = (np.take_along_axis(x, i, 1) for x, i in zip(per_device, (origins, rows), strict=True))
    np.testing.assert_array_equal(groups.ravel()[real[:, 0]], moved.groups[real[:, 0]])
    np.testing.assert_array_equal(numbers.reshape(real.shape)[real], moved.rows[real])


def named(layout):
    real = layout.rows >= 0
    return sorted((100 * layout.groups[:, None] + layout.rows)[real].tolist())


def test_blocks_of_finished_rollouts_are_left_out():
    (layout,) = passes([4, 4, 4, 4], 2)
    live = np.zeros((8, 2), bool)
    live[[0, 1, 6], [0, 1, 0]] = True  # two of the first group, one of the last
    moved, origins, rows = compacted(layout, live, 1)
    assert moved.groups.tolist() == [0, 3]
    assert moved.rows.tolist() == [[0, 3], [0, -1]]
    assert origins.tolist() == [[0, 6]]
    assert rows.tolist() == [[0, 3, 12, 0]]
