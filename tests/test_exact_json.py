from hypothesis import given
from hypothesis import strategies as st

from pods_jax import exact_json

KEYS = st.text(max_size=5) | st.integers() | st.tuples(st.integers(), st.integers()) | st.just("__kind__")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.sets(st.integers() | st.text(max_size=3), max_size=3)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_values_come_back_as_they_went_in(value):
    found = exact_json.loads(exact_json.dumps(value))
    assert found == value
    assert type(found) is type(value)


def test_plain_json_is_read_and_strange_objects_become_text():
    assert exact_json.loads('{"a": [1, null]}') == {"a": [1, None]}
    assert exact_json.loads(exact_json.dumps({"a": 1j})) == {"a": "1j"}
