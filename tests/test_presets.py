import pytest

from pods_jax.config.methods import PRESETS
from pods_jax.config.schema import default_config, from_mapping, to_dict
from pods_jax.config.validate import violations


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_presets_are_valid_configs(name):
    c = default_config()
    c.selection.num_kept = c.rollout.num_generations = 16  # what a preset of rule "all" leaves to the config
    c.update_from_flattened_dict(PRESETS[name])
    config, problems = from_mapping(c)
    assert not problems + violations(config)
    for key, value in PRESETS[name].items():
        section, field = key.split(".")
        assert to_dict(config)[section][field] == value


def test_no_two_presets_are_the_same_method():
    assert len({str(sorted(preset.items())) for preset in PRESETS.values()}) == len(PRESETS)
