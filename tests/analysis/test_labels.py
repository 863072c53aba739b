from pods_jax.analysis.compare import differences


def test_a_key_bears_its_section_where_others_have_one_of_that_name():
    config = {"rollout.num_prompts": 16, "evaluation.num_prompts": 256, "optimizer.learning_rate": 1e-3, "seed": 0}
    other = config | {"evaluation.num_prompts": 64, "optimizer.learning_rate": 3e-4}
    assert differences([config, other]) == [
        ["evaluation.num_prompts = 256", "lr = 0.001"],
        ["evaluation.num_prompts = 64", "lr = 0.0003"],
    ]


def test_equal_configs_do_not_differ_and_a_key_may_be_absent():
    assert differences([{"a.b": 1}]) == [[]]
    assert differences([{"a.b": 1}, {"a.b": 1, "a.c": 2}]) == [["c = None"], ["c = 2"]]
