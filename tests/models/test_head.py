import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pods_jax.models.decoder import head_logits
from pods_jax.models.head import project


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("vocab", [7, 1024, 2500])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_logits_are_the_heads_whatever_the_chunks(rows, vocab, tied, dtype):
    rng = np.random.default_rng(0)
    head = rng.normal(size=(8, vocab)).astype(dtype)
    hidden = rng.normal(size=(rows, 8)).astype(dtype)
    params = (
        {"embed": jnp.array(head.T)} if tied else {"embed": jnp.zeros((vocab, 8), dtype), "lm_head": jnp.array(head)}
    )
    logits = jax.jit(project)(jnp.array(hidden), params)
    assert logits.dtype == jnp.float32
    np.testing.assert_allclose(logits, hidden.astype(np.float64) @ head.astype(np.float64), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(logits, head_logits(params, jnp.array(hidden)), rtol=1e-5, atol=1e-5)
