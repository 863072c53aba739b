import jax.numpy as jnp
import numpy as np

from pods_jax.objective import soft_overlong_penalty


def dapo(length, limit, cache):
    """The three cases of the paper, written out."""
    if length <= limit - cache:
        return 0.0
    return ((limit - cache) - length) / cache if length <= limit else -1.0


def test_the_penalty_is_the_papers():
    lengths = np.array([0, 100, 16384, 16385, 18432, 20480, 30000])
    got = soft_overlong_penalty(jnp.asarray(lengths), 20480, 4096)
    np.testing.assert_allclose(got, [dapo(n, 20480, 4096) for n in lengths], rtol=1e-6)
