"""Plans for GPUs that are not there."""

import pytest

from pods_jax.errors import UserError
from pods_jax.planning.arithmetic import gpus


def test_topologies_of_gpus():
    assert gpus("H200:8") == ("H200", 8)
    assert gpus("v5e:4x2") is None
    assert gpus("local") is None
    for wrong in ("H200", "H200:0", "H200:2x4"):
        with pytest.raises(UserError, match="give the number of GPUs, as in H200:8"):
            gpus(wrong)
