"""Figures of runs."""

from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pods_jax.analysis.curves import running_mean
from pods_jax.analysis.runs import read_run


def learning_curve(workdir: Path, out: Path) -> None:
    """Test accuracy against training time, and training reward with kept variance against steps, as a PNG."""
    run = read_run(workdir)
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    time_s = [e["wall_time_s"] for e in run.evals]
    for key, label in (("accuracy", "sampled"), ("greedy_accuracy", "greedy")):
        if all(key in e for e in run.evals):
            left.plot(time_s, [100 * e[key] for e in run.evals], marker="o", markersize=3, label=label)
    left.set(xlabel="training time (s), evaluation and compilation excluded", ylabel="test accuracy (%)", ylim=(0, 100))
    left.legend(loc="lower right")
    steps = [m["step"] for m in run.metrics]
    for key, label in (
        ("reward", "mean reward, all n"),
        ("selection/group_variance", "reward variance, all n"),
        ("selection/kept_variance", "reward variance, kept m"),
    ):
        right.plot(steps, running_mean([m[key] for m in run.metrics], window=9), label=label)
    right.set(xlabel="step", ylabel="mean over 9 steps")
    right.legend()
    figure.suptitle(run.title)
    figure.savefig(out, dpi=150)
