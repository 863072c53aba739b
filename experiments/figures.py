"""Figures of the PODS authors' published runs, or of your own.

    python experiments/figures.py --published docs/published/pods.json --out figs   # or results/ of YixuanEvenXu/pods
    python experiments/figures.py --runs runs/sweep --out figs                      # all workdirs below

--json ends with one line: speed-ups, peaks and seconds per step. docs/figures.md tells what the numbers mean.
"""

import argparse
import sys
from pathlib import Path
from statistics import fmean

from pods_jax.analysis import comparison, paper
from pods_jax.analysis.comparison import View, speed_up_in_words, with_half_width
from pods_jax.analysis.curves import AXES
from pods_jax.analysis.published_file import reader, write_compact
from pods_jax.cli import main_with_errors, print_json
from pods_jax.errors import UserError


def main() -> None:
    args = _parser().parse_args()
    if args.compact and not (args.published and args.published.is_dir()):
        raise UserError("--compact needs --published with the authors' results/ folder")
    if args.compact:
        write_compact(args.published, args.compact)
        print(f"numbers in {args.compact}")
        return
    if args.published:
        numbers = paper.draw(reader(args.published), args.out)
        _print_settings(numbers["settings"])
    else:
        numbers = comparison.draw(args.runs, args.out, View(args.metric, args.axis, args.window, args.target))
        for line in numbers["warnings"]:
            print(f"warning: {line}", file=sys.stderr)
        _print_groups(numbers["groups"])
    print(f"figures in {args.out}: {', '.join(Path(f).name for f in numbers['figures'])}")
    if args.json:
        print_json(numbers)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--published", type=Path, metavar="PATH", help="the authors' results/ folder, or a file of --compact"
    )
    source.add_argument("--runs", type=Path, metavar="DIR", help="a folder with workdirs in it, at any depth")
    parser.add_argument("--out", type=Path, default=Path("figs"), help="where the PNG files go (default: figs)")
    parser.add_argument("--compact", type=Path, metavar="FILE", help="write --published's numbers to it, draw nothing")
    parser.add_argument("--axis", choices=AXES, default="wall_time_s", help="of --runs (default: wall_time_s)")
    parser.add_argument("--metric", default="accuracy", help="of --runs: a key of eval.jsonl (default: accuracy)")
    parser.add_argument("--window", type=int, default=1, help="of --runs: running means over so many evaluations")
    parser.add_argument("--target", type=float, help="of --runs: rollouts and seconds to this share, such as 0.9")
    parser.add_argument("--json", action="store_true", help="print a one-line JSON summary at the end")
    return parser


def _print_settings(settings: dict) -> None:
    print(f"{'setting':12} {'threshold':>9} {'baseline':>9} {'PODS':>8} {'speed-up':>9} {'peaks':>12} {'s/step':>12}")
    for name, s in settings.items():
        baseline = s["runs"]["baseline"]
        pods = s["runs"]["pods"]
        unit = s["unit"]
        peaks = f"{baseline['peak']:.4f} {pods['peak']:.4f}"
        steps = f"{baseline['seconds_per_step']:.2f} {pods['seconds_per_step']:.2f}"
        times = f"{s['baseline']:5.1f} {unit:3} {s['method']:4.1f} {unit:3}"
        print(f"{name:12} {s['threshold']:9.4f} {times} {s['ratio']:8.2f}x {peaks:>14} {steps:>12}")


def _print_groups(groups: dict) -> None:
    for label, g in groups.items():
        seconds = g["seconds_per_step"]["step"]
        last = with_half_width(g["last"], g["last_half_width"])
        print(f"{label}: {g['num_runs']} run(s), last {last}, {seconds:.3g} s/step")
        if "rollouts_to_target" in g:
            reached = [r for r in g["rollouts_to_target"] if r is not None]
            mean = f", after {fmean(reached):,.0f} rollouts on average" if reached else ""
            print(f"    target reached by {len(reached)} of {g['num_runs']}{mean}")
        for baseline, s in g["speed_up_over"].items():
            print(f"    to {s['threshold']:.4f}, 99 % of the best of {baseline}: {speed_up_in_words(s)}")


if __name__ == "__main__":
    main_with_errors(main)
