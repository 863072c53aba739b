import pytest

from pods_jax.config.methods import METHODS
from pods_jax.config.schema import default_config, flat, from_mapping, to_dict
from pods_jax.config.validate import violations


@pytest.mark.parametrize("name", sorted(METHODS))
def test_methods_are_valid_configs(name):
    c = default_config()
    c.selection.num_kept = c.rollout.num_generations = 16  # what a method without sizes leaves to the config
    c.update_from_flattened_dict(METHODS[name])
    config, problems = from_mapping(c)
    assert not problems + violations(config)
    values = flat(to_dict(config))
    for key, value in flat(dict(METHODS[name])).items():
        assert values[key] == value


def test_no_two_methods_are_the_same():
    assert len({str(sorted(keys.items())) for keys in METHODS.values()}) == len(METHODS)
