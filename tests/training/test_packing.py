import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pods_jax.training.checkpoint import pack, unpack

LEAVES = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False)
ARRAYS = st.sampled_from(["?", "u1", "i4", "i8", "f2", "f4", "f8", "U3"]).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0, max_side=3))
)
STATES = st.recursive(
    LEAVES | ARRAYS, lambda node: st.lists(node, max_size=3) | st.dictionaries(st.text(), node, max_size=3)
)


def same(a, b):
    if isinstance(a, np.ndarray):
        return type(b) is np.ndarray and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return len(a) == len(b) and all(map(same, a, b)) if isinstance(a, list) else a == b and type(a) is type(b)


@given(STATES)
def test_what_is_unpacked_is_what_was_packed_to_the_bit(state):
    plain, packed = pack(state)
    assert same(state, unpack(json.loads(json.dumps(plain)), packed))


def test_arrays_do_not_become_json():
    plain, packed = pack({"buffer": [{"tokens": np.arange(100_000)}]})
    assert len(json.dumps(plain)) < 100
    assert packed.nbytes >= 800_000


def test_nothing_is_pickled():
    with pytest.raises(ValueError, match="allow_pickle"):
        pack([np.array([{}])])
