import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pods_jax.errors import UserError
from pods_jax.parallel import batch_sharding, make_mesh
from pods_jax.planning.chips import topology_devices
from pods_jax.rollout import attention_kernel
from pods_jax.rollout.attention_kernel import AttentionKernel, attention
from pods_jax.rollout.decode import Cache, attend

SHAPES = {
    "six query heads": (4, 4, 2, 6, 64, 24, 256, "float32"),
    "odd sizes": (3, 2, 1, 1, 128, 160, 300, "float32"),
    "a short cache": (2, 1, 2, 2, 8, 3, 20, "float32"),
    "bfloat16": (4, 4, 2, 6, 128, 256, 256, "bfloat16"),
}
"""B, g, K, G, h, S, U and the type of the values."""


def sizes(B, g, K, G, h, S, U, dtype):
    R = B * g
    return (B, g, 1, K * G, h), (R, K, h, U), (R, K, U, h), (B, K, h, S), (B, K, S, h)


def arrays(*shape):
    """Queries, caches, and prompts of different lengths, the first of one token, as padding has it."""
    rng = np.random.default_rng(0)
    q, k, v, prompt_k, prompt_v = (jnp.asarray(rng.normal(size=x), shape[-1]) for x in sizes(*shape))
    S = shape[5]
    lengths = np.linspace(1, S, shape[0]).astype(int)
    return q, Cache(k, v), Cache(prompt_k, prompt_v), jnp.arange(S) < jnp.asarray(lengths)[:, None]


def unfilled(cache, t):
    """NaN after token t."""
    return Cache(cache.k.at[..., t + 1 :].set(jnp.nan), cache.v.at[:, :, t + 1 :].set(jnp.nan))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_equals_attention_with_whole_scores_and_reads_nothing_that_is_unfilled(shape):
    q, own, prompts, valid = arrays(*shape)
    kernel = jax.jit(AttentionKernel())
    U = own.k.shape[-1]
    tolerance = 1e-6 if shape[-1] == "float32" else 2**-6
    for t in sorted({0, 1, 127, 128, U - 1} & set(range(U))):
        found = kernel(q, unfilled(own, t), jnp.int32(t), prompts, valid)
        assert found.dtype == q.dtype
        expected = attend(q, own, jnp.int32(t), prompts, valid)
        np.testing.assert_allclose(*(np.asarray(x, np.float32) for x in (found, expected)), rtol=0, atol=tolerance)


def test_bfloat16_is_as_near_to_float64_as_whole_scores_are():
    q, own, prompts, valid = arrays(*SHAPES["bfloat16"])
    exact = jax.tree.map(lambda x: x.astype(jnp.float32), (q, own, prompts))
    expected = attend(*exact[:2], jnp.int32(200), exact[2], valid)
    errors = [np.abs(f(q, own, jnp.int32(200), prompts, valid) - expected).max() for f in (AttentionKernel(), attend)]
    assert errors[0] <= 1.5 * errors[1]


def test_a_block_of_many_rollouts_is_split(monkeypatch):
    monkeypatch.setattr(attention_kernel, "STEP_BYTES", 5 * 2 * 8 * 128 * 4)
    q, own, prompts, valid = arrays(2, 8, 1, 1, 8, 4, 16, "float32")
    found = AttentionKernel()(q, own, jnp.int32(5), prompts, valid)
    np.testing.assert_allclose(found, attend(q, own, jnp.int32(5), prompts, valid), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("blocks", "g", "rows"), [(128, 4, 64), (6, 1, 6), (7, 4, 28), (1, 128, 64), (1, 97, 1), (3, 1, 3)]
)
def test_rows_of_a_step_divide_what_is_there(blocks, g, rows):
    assert attention_kernel._rows(blocks, g, 2 * 128 * 128 * 2) == rows


def test_an_unknown_name_is_refused():
    with pytest.raises(UserError, match="attention = 'kernels' is unknown"):
        attention("kernels", None)


@pytest.mark.parametrize("topology", ["v5e:1x1", "v5p:1x1x1", "v5e:2x2"])
@pytest.mark.parametrize("shape", [(32, 4, 2, 6, 128, 256, 1024, "bfloat16"), (4, 4, 2, 7, 64, 24, 192, "float32")])
def test_compiles_for_tpus(topology, shape):
    """On four chips each has half of the blocks, and one of the heads."""
    pytest.importorskip("libtpu")
    devices = topology_devices(topology)
    sharding = batch_sharding(make_mesh(tensor=len(devices) // 2 or 1, devices=devices))
    struct = functools.partial(jax.ShapeDtypeStruct, sharding=sharding)
    q, k, v, prompt_k, prompt_v = (struct(x, shape[-1]) for x in sizes(*shape))
    valid = struct((shape[0], shape[5]), "bool")
    t = jax.ShapeDtypeStruct((), "int32")
    kernel = jax.jit(AttentionKernel(sharding))
    program = kernel.lower(q, Cache(k, v), t, Cache(prompt_k, prompt_v), valid).compile()
    assert "tpu_custom_call" in program.as_text()
