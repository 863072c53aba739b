"""What a step needs, before the hardware is rented: python experiments/plan.py --config C --topology v5e:4x4

Compiles the programs of a training step (sampling; scoring, if there is a KL; update) for this machine's devices
(--topology local) or for a TPU slice that is not there (pip install -e '.[plan]'), with no weights. Reports memory,
arithmetic, communication, and the least time of each. model.path may be a hub id in pods_jax/models/shapes.py, whose
files are not needed. --sweep m (or n) raises how many rollouts are trained on (or generated) until memory runs out,
and --out draws the curve. --json ends with one line.
"""

from pathlib import Path

from pods_jax.cli import add_count, config_parser, main_with_errors, parse_experiment, print_json


def main() -> None:
    parser = config_parser(__doc__)
    parser.add_argument("--topology", default="local", help="local, or CHIP:LAYOUT such as v5e:4x4 or v5p:2x2x2")
    parser.add_argument("--sweep", choices=("m", "n"), help="raise m or n until memory runs out")
    add_count(parser, "--values", nargs="+", help="the values of --sweep, in place of doubling")
    parser.add_argument("--out", type=Path, help="where --sweep draws its curve: a .png, with a .json beside it")
    args, config = parse_experiment(parser)
    from pods_jax.planning.report import run

    summary = run(config, args.topology, args.sweep, args.values, args.out)
    if args.json:
        print_json(summary)


if __name__ == "__main__":
    main_with_errors(main)
