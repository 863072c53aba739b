"""The pictures of README.md: PODS's step as a diagram, and the demo's learning curves; prints the demo's table.

    python experiments/sweep.py --config configs/demo.py:pods --config configs/demo.py:grpo_ga \\
        --config configs/demo.py:grpo --seeds 0-2 --set training.eval_every_steps=10 --workdir runs/pictures
    python docs/pictures/draw.py runs/pictures

Times are steps times the seconds of a step that docs/results/costs.json holds, as measured on a quiet machine.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle

from pods_jax.analysis.runs import RunRecord, read_run
from pods_jax.analysis.style import LOOKS, new_figure
from pods_jax.selection import select

HERE = Path(__file__).parent
COSTS = HERE.parent / "results" / "costs.json"

METHODS = ("pods", "grpo_ga", "grpo")
"""Of the demo, in the order of the table."""
TARGETS = (0.95, 0.98)
NUM_KEPT = 4
RIGHT, WRONG, INK = LOOKS["percentile"].color, LOOKS["grpo"].color, "#444444"
NUM_RIGHT = (5, 11, 0)
"""Right rollouts of each prompt in the diagram, of 16."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="?", help="the folder of the demo's runs (default: the diagram only)")
    args = parser.parse_args()
    draw_step(HERE / "step.png")
    if args.runs:
        by_method = defaultdict(list)
        for file in sorted(args.runs.rglob("summary.json")):
            by_method[file.parts[-3].partition("-")[2].partition(",")[0]].append(read_run(file.parent))
        draw_demo(HERE / "demo.png", by_method)
        print(table_of_demo(by_method))


# ---------------------------------------------------------------- the step


def draw_step(path: Path) -> None:
    """PODS's step for three prompts, each with 16 rollouts of which the rule max_variance keeps 4."""
    rng = np.random.default_rng(1)
    rewards = np.array([rng.permutation(np.arange(16) < right) for right in NUM_RIGHT], np.float32)
    kept = np.asarray(select("max_variance", rewards, NUM_KEPT, jax.random.key(0)))
    with new_figure(height_in=2.15) as figure:
        axes = figure.subplots()
        axes.set(xlim=(0, 65), ylim=(-1.2, 17.5), aspect="equal")
        axes.set_axis_off()
        heads = {
            4: "P prompts",
            21.5: "n rollouts each,\ngenerated and verified",
            43: "the m of largest\nreward variance",
        }
        for x, text in {**heads, 58.5: "one update"}.items():
            axes.text(x, 16.3, text, ha="center", va="center", fontsize=8, color=INK)
        for row, (group, chosen) in enumerate(zip(rewards, kept, strict=True)):
            _draw_group(axes, 10.6 - 4.8 * row, group, np.sort(chosen))
        _draw_box(axes, 54, 1, 9, 11.6, "advantages\nwithin the m,\nloss,\ngradient")
        _draw_legend(axes)
        figure.savefig(path)


def _draw_group(axes: Axes, y: float, rewards: np.ndarray, kept: np.ndarray) -> None:
    _draw_box(axes, 0.5, y, 7, 2, "prompt")
    _draw_arrow(axes, 8, 11.2, y + 1)
    for i, reward in enumerate(rewards):
        _draw_rollout(axes, 12 + 1.2 * i, y + 0.5, reward, faded=i not in kept)
    _draw_arrow(axes, 31.8, 38.7, y + 1, "select")
    for place, i in enumerate(kept):
        _draw_rollout(axes, 40 + 1.6 * place, y + 0.5, rewards[i])
    _draw_arrow(axes, 47, 53.2, y + 1)


def _draw_rollout(axes: Axes, x: float, y: float, reward: float, faded: bool = False) -> None:
    color = RIGHT if reward else WRONG
    axes.add_patch(Rectangle((x, y), 0.9, 0.9, facecolor=color, alpha=0.3 if faded else 1.0, linewidth=0))


def _draw_box(axes: Axes, x: float, y: float, width: float, height: float, text: str) -> None:
    style = {"boxstyle": "round,pad=0,rounding_size=0.5", "facecolor": "#F4F4F4", "edgecolor": INK, "linewidth": 0.7}
    axes.add_patch(FancyBboxPatch((x, y), width, height, **style))
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=7, color=INK)


def _draw_arrow(axes: Axes, start: float, end: float, y: float, text: str = "") -> None:
    arrow = {"arrowstyle": "-|>", "color": INK, "linewidth": 0.8, "mutation_scale": 7, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (end, y), (start, y), arrowprops=arrow)
    axes.text((start + end) / 2, y + 0.3, text, ha="center", va="bottom", fontsize=6.5, color=INK)


def _draw_legend(axes: Axes) -> None:
    for x, reward, faded, text in ((12, 1, False, "right"), (17, 0, False, "wrong"), (23, 1, True, "")):
        _draw_rollout(axes, x, -1.1, reward, faded)
        axes.text(x + 1.3, -0.65, text, va="center", fontsize=6.5, color=INK)
    _draw_rollout(axes, 24.1, -1.1, 0, faded=True)
    axes.text(25.4, -0.65, "generated, not trained on", va="center", fontsize=6.5, color=INK)


# ---------------------------------------------------------------- the demo


def draw_demo(path: Path, by_method: Mapping[str, Sequence[RunRecord]]) -> None:
    """Test accuracy against training time, and rollouts trained on in a step; a line a method, its seeds as a band."""
    with new_figure(height_in=2.5, width_in=5.0) as figure:
        axes = figure.subplots()
        for method in METHODS:
            _draw_method(axes, method, by_method[method])
        axes.set(xlabel="training time (s)", ylabel="test accuracy (%)", ylim=(0, 101), xlim=(0, 10))
        axes.legend(loc="lower right")
        figure.savefig(path)


def _draw_method(axes: Axes, method: str, runs: Sequence[RunRecord]) -> None:
    look = LOOKS[method]
    times_s = _times(method, runs[0])
    accuracy = np.array([[100 * e["accuracy"] for e in run.evals] for run in runs])
    label = f"{look.label}: {_sizes(runs)}"
    axes.plot(times_s, accuracy.mean(0), color=look.color, marker=look.marker, label=label)
    axes.fill_between(times_s, accuracy.min(0), accuracy.max(0), color=look.color, alpha=0.18, linewidth=0)


def table_of_demo(by_method: Mapping[str, Sequence[RunRecord]]) -> str:
    """The rows of README's table: means of the seeds before and after, and the range of the times to two accuracies."""
    return "\n".join(_row(method, by_method[method]) for method in METHODS)


def _row(method: str, runs: Sequence[RunRecord]) -> str:
    times_s = _times(method, runs[0])
    spans = [_change(runs, metric) for metric in ("accuracy", "greedy_accuracy")]
    cells = [f"{LOOKS[method].label}, `:{method}` ({_sizes(runs)})", *spans, f"{times_s[-1]:.1f} s"]
    return f"| {' | '.join(cells + [_reached(runs, times_s, target) for target in TARGETS])} |"


def _change(runs: Sequence[RunRecord], metric: str) -> str:
    first, last = (np.mean([run.evals[i][metric] for run in runs]) for i in (0, -1))
    return f"{100 * first:.1f} % → {100 * last:.1f} %"


def _reached(runs: Sequence[RunRecord], times_s: np.ndarray, target: float) -> str:
    """When the first evaluation of a run is there, in the fastest and in the slowest of the runs."""
    reached = [times_s[next(i for i, e in enumerate(run.evals) if e["accuracy"] >= target)] for run in runs]
    return " to ".join(dict.fromkeys((f"{min(reached):.1f}", f"{max(reached):.1f}"))) + " s"


def _sizes(runs: Sequence[RunRecord]) -> str:
    config = runs[0].config
    return f"{config['rollout']['num_generations']} rollouts a prompt, {config['selection']['num_kept']} trained on"


def _times(method: str, run: RunRecord) -> np.ndarray:
    """Seconds of training before each evaluation."""
    seconds = json.loads(COSTS.read_text())["variants"][method]["seconds"]["step"]
    return np.array([e["step"] for e in run.evals]) * seconds


if __name__ == "__main__":
    main()
