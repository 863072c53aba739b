"""Which folders are workdirs, and what is said of those with nothing to draw."""

from made_runs import make_run

from pods_jax.analysis.runs import find_runs


def test_runs_without_steps_evaluations_or_config_are_named(tmp_path):
    a, b, c, d = (make_run(tmp_path / k, n=8, m=4, rule="all", seed=0, rate=1.0) for k in "abcd")
    (b / "metrics.jsonl").write_text("")
    (c / "config.json").unlink()
    for log in ("metrics.jsonl", "eval.jsonl"):
        (d / log).unlink()
    runs, left_out = find_runs(tmp_path)
    assert [run.workdir for run in runs] == [a]
    assert left_out == [
        f"{b} is left out: it has no step",
        f"{c} is left out: it has no config.json of a run",
        f"{d} is left out: it has no step and no evaluation",
    ]


def test_a_models_config_is_no_run(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert find_runs(tmp_path) == ([], [])
