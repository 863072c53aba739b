from pathlib import Path

import pytest

from pods_jax.config.load import load_config
from pods_jax.config.methods import METHODS
from pods_jax.config.schema import default_config, flat, from_mapping, to_dict
from pods_jax.config.validate import violations
from pods_jax.errors import UserError

ROOT = Path(__file__).parents[2]


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


def test_the_group_of_a_method_that_keeps_all_has_one_size():
    demo = str(ROOT / "configs/demo.py")
    for argument in ("grpo,n=32", "grpo,m=32", "grpo,n=32,m=32"):
        config = load_config(f"{demo}:{argument}")
        assert (config.rollout.num_generations, config.selection.num_kept) == (32, 32)
    for argument in ("grpo,n=32,m=16", "grpo,m=16,n=32"):
        with pytest.raises(UserError, match=r"num_kept = 16 must be rollout.num_generations = 32"):
            load_config(f"{demo}:{argument}")


def test_no_two_methods_are_the_same():
    assert len({str(sorted(keys.items())) for keys in METHODS.values()}) == len(METHODS)
