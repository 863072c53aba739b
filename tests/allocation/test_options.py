import pytest
from simulated_world import World, make, make_config

from pods_jax.allocation import Exhausted, option_problems
from pods_jax.allocation.options import no_share, options_of, too_small, unknown_choice, when_exhausted
from pods_jax.allocation.pilot_commit import PilotCommitOptions
from pods_jax.config.validate import violations
from pods_jax.errors import UserError
from pods_jax.groups import Prompt, Request

GROUP = World([0.5]).group(Request(Prompt(0, 0, "", "", "", ()), 8))

ENDS = [  # every option at the ends of its range, P = 4 and n = 8
    ("uniform", {"groups_per_prompt": 4}),
    ("dynamic_sampling", {"candidates": 1, "max_rounds": 1}),
    ("greso", {"p_least": 0.0, "p_initial": 0.0, "p_most": 0.0, "p_explore": 0.0, "p_step": 0.0, "target": 0.0}),
    ("greso", {"p_least": 1.0, "p_initial": 1.0, "p_most": 1.0, "p_explore": 1.0, "p_step": 1.0, "target": 1.0}),
    ("greso", {"easy_share": 0.0, "margin": 1.0, "candidates": 1, "least_candidates": 1, "max_rounds": 1}),
    ("pilot_commit", {"n_pilot": 2, "n_effective": 0, "n_commit": 8, "p_lower": 0.5, "p_upper": 0.5}),
    ("pilot_commit", {"n_pilot": 7, "n_effective": 7, "n_commit": 1, "p_lower": 0.0, "p_upper": 1.0}),
    (
        "pilot_commit",
        {"evict_after_k_solved": 1, "buffer_size": 1, "max_staleness": 0, "max_rounds": 2, "candidates": 1},
    ),
    ("speed", {"n_init": 2, "n_continue": 6, "max_rounds": 2, "candidates": 1}),
    ("speed", {"n_init": 7}),
    ("reinforce_ada", {"max_rounds": 1}),
    ("reinforce_ada", {"max_rounds": 8}),
    ("knapsack", {"n_min": 2, "n_negative": 2, "n_positive": 2, "n_max": 8, "window": 1, "trusted": 1}),
    ("knapsack", {"n_min": 8, "n_negative": 8, "n_positive": 8, "window": 4, "trusted": 4, "confidence": 0.01}),
    ("mopps", {"candidates": 4, "decay": 0.0, "target": 0.0, "lower": 0.0, "upper": 0.0}),
    ("mopps", {"decay": 1.0, "target": 1.0, "lower": 1.0, "upper": 1.0}),
    ("vip", {"n_min": 8, "n_max": 8, "embedding_size": 1, "scale": 0.01, "noise": 1e-9}),
    ("vip", {"n_min": 3, "variance": "dr_grpo"}),
    ("vip", {"n_min": 2}),
    ("cures", {"candidates": 4, "temperature": 0.01, "n_min": 8}),
    ("prompt_curriculum", {"candidates": 4, "target": 0.0, "num_updates": 1, "embedding_size": 1}),
]


@pytest.mark.parametrize(("name", "options"), ENDS)
def test_the_ends_of_every_range_are_allowed(name, options):
    assert violations(make_config(name, P=4, n=8, **options)) == []


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("greso", {"p_least": -0.1}, "0 <= p_least <= p_initial <= p_most <= 1 must hold"),
        ("greso", {"p_least": 0.6}, "0 <= p_least <= p_initial <= p_most <= 1 must hold"),
        ("greso", {"p_most": 0.4}, "0 <= p_least <= p_initial <= p_most <= 1 must hold"),
        ("greso", {"p_most": 1.1}, "0 <= p_least <= p_initial <= p_most <= 1 must hold"),
        ("pilot_commit", {"n_effective": -1, "n_commit": 9}, "n_effective = -1 must lie between 0 and n_pilot = 2"),
        ("pilot_commit", {"n_pilot": 3, "n_effective": 4}, "n_effective = 4 must lie between 0 and n_pilot = 3"),
        ("pilot_commit", {"n_pilot": 8}, "8 pilot + 0 commit rollouts must be rollout.num_generations = 8"),
        ("pilot_commit", {"p_lower": -0.1}, "0 <= p_lower <= p_upper <= 1 must hold"),
        ("pilot_commit", {"p_upper": 1.1}, "0 <= p_lower <= p_upper <= 1 must hold"),
        ("pilot_commit", {"p_solve": 1.1}, "p_solve must lie in (0, 1] or be None, got 1.1"),
        ("speed", {"n_init": 8}, "8 n_init + 0 n_continue rollouts must be rollout.num_generations = 8"),
        ("knapsack", {"trusted": 0}, "1 <= trusted <= window must hold, got trusted = 0 and window = 16"),
        ("knapsack", {"confidence": 0.0}, "confidence must lie between 0 and 1, got 0.0"),
        ("knapsack", {"n_positive": 9}, "n_positive = 9 exceeds rollout.num_generations = 8"),
        ("reinforce_ada", {"max_rounds": 0}, "max_rounds must be at least 1, got 0"),
        ("mopps", {"lower": -0.1}, "0 <= lower <= upper <= 1 must hold"),
        ("mopps", {"upper": 1.1}, "0 <= lower <= upper <= 1 must hold"),
        ("mopps", {"decay": -0.1}, "decay must lie in [0, 1], got -0.1"),
        ("vip", {"n_min": 9}, "rollout.num_generations = 8 must lie between allocation.options.n_min = 9"),
        ("vip", {"n_max": 7}, "and n_max = 7"),
    ],
)
def test_what_lies_beyond_is_refused(name, options, problem):
    (found,) = violations(make_config(name, P=4, n=8, **options))
    assert problem in found
    with pytest.raises(UserError, match=r"allocation\.options|num_generations"):
        make(name, P=4, n=8, **options)


def test_options_are_read_as_their_dataclass():
    config = make_config("pilot_commit", p_upper=0.5, candidates=3)
    assert options_of(PilotCommitOptions, config) == PilotCommitOptions(p_upper=0.5, candidates=3)
    assert option_problems(config) == []
    with pytest.raises(UserError, match=r"config: unknown key allocation\.options\.p_uper"):
        options_of(PilotCommitOptions, make_config("pilot_commit", p_uper=0.5))


def test_checks():
    assert list(too_small("x", 2, 2)) == list(too_small("x", None, 2)) == []
    assert list(too_small("x", 1, 2)) == ["allocation.options.x must be at least 2, got 1"]
    assert list(too_small("x", float("nan"), 2)) == ["allocation.options.x must be at least 2, got nan"]
    assert list(no_share("x", 0.0)) == list(no_share("x", 1.0)) == []
    assert list(no_share("x", float("nan"))) == ["allocation.options.x must lie in [0, 1], got nan"]
    assert list(unknown_choice("x", "a", ("a", "b"))) == []


def test_the_end_of_a_step_with_too_few_groups():
    assert when_exhausted("train_partial", "few", [GROUP]) == [GROUP]
    for policy, partial in (("train_partial", []), ("stop", []), ("stop", [GROUP])):
        with pytest.raises(Exhausted, match=r"^few$"):
            when_exhausted(policy, "few", partial)
    with pytest.raises(UserError, match=r"^few\. Or set allocation\.options\.on_exhausted"):
        when_exhausted("error", "few", [GROUP])
