"""Step costs of the language model's methods: rewards that always vary, and only methods whose steps have one cost."""

import json

import pytest
from study import smollm2_stages
from study.coin import coin
from study.smollm2 import FULL_EXTENT, METHODS
from study.smollm2_stages import VARIED, make_smollm2, step_costs

from pods_jax.config.load import load_config
from pods_jax.config.validate import validate_on_devices


def test_the_coin_splits_groups_of_every_size():
    assert {sum(coin(["p"] * n, ["c"] * n)) / n for n in (4, 16, 32)} == {0.5}


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """The configs by setting, of a stage that makes no run and measures nothing."""
    configs = {}

    def measure(definitions, rounds):
        configs[len(configs)] = {n: load_config(spec, overrides) for n, (spec, *overrides) in definitions.items()}
        return {"seconds": {name: {"step": 2.0 + len(configs)} for name in definitions}}

    monkeypatch.setattr(smollm2_stages, "summary_of_steps", measure)
    monkeypatch.setattr(smollm2_stages, "make_trials", lambda extent, *_: {extent.settings[0].name: "no luck"})
    failed = make_smollm2(FULL_EXTENT, tmp_path / "work", tmp_path, 3, workers=2)
    assert list(failed) == [s.name for s in FULL_EXTENT.settings]
    return configs


def test_every_setting_is_measured_once_with_rewards_that_vary(measured, tmp_path):
    assert len(measured) == len(FULL_EXTENT.settings)
    for configs in measured.values():
        assert set(configs) == set(METHODS) - {"pilot_commit"}
        for config in configs.values():
            validate_on_devices(config, 1)
            assert config.reward.parts.to_dict() == VARIED["reward.parts"]
    make_smollm2(FULL_EXTENT, tmp_path / "work", tmp_path, 3, workers=2)
    assert len(measured) == len(FULL_EXTENT.settings)
    costs = step_costs(FULL_EXTENT, tmp_path)["chain_sum-P1"]
    assert costs == {method: {"step": 3.0} for method in METHODS if method != "pilot_commit"}


def test_records_and_costs_of_a_folder_do_not_mix(measured, tmp_path):
    assert not list(tmp_path.glob("*.json"))
    assert len(list((tmp_path / "costs").glob("*.json"))) == len(FULL_EXTENT.settings)
    assert json.loads((tmp_path / "costs" / "products-P4.json").read_text())["seconds"]
