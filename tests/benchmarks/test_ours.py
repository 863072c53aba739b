"""Our side of each comparison counts its tokens."""

import pytest
from benchmark import our_sampler, ours
from benchmark.workload import write_model

from pods_jax.rollout import generate

OPTIONS = {"prompt_tokens": 8, "new_tokens": 8, "remat": "full", "micro_batch_size": None}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    write_model("tiny", path)
    return str(path)


def test_a_sampler_counts_tokens_up_to_their_ends(folder):
    options = OPTIONS | {"folder": folder, "n": 64}
    assert our_sampler.sampler(options | {"mean_length": None})() == 64 * 8
    mean = our_sampler.sampler(options | {"mean_length": 4})() / 64
    assert mean == pytest.approx(4 * (1 - 0.75**8), rel=0.25)  # of geometric lengths, cut at 8


def test_a_heavy_tail_is_generated_within_room_for_a_share(folder):
    options = OPTIONS | {"folder": folder, "n": 16, "share": 4, "new_tokens": 24, "mean_length": 3}
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(our_sampler, "generate", lambda *args, **given: seen.append(given) or generate(*args, **given))
        tokens = our_sampler.tails(options)()
    assert 16 <= tokens <= 16 * 24
    assert seen[0]["max_cache_bytes_per_device"] == 2 * 2 * 16 * 4 * (4 * 24 + 2 * 8)


@pytest.mark.parametrize(("n", "m"), [(4, 4), (6, 2)])
def test_a_step_generates_n_completions(folder, n, m):
    assert n * 8 - 8 <= ours.step(OPTIONS | {"folder": folder, "n": n, "m": m})() <= n * 8
