"""Evaluate a run's checkpoint: python experiments/evaluate.py --config configs/demo.py --workdir runs/demo

Overrides may change what is evaluated, such as --config.evaluation.num_samples=16. --json ends with a one-line summary.
"""

import json

from pods_jax.cli import add_checkpoint, experiment_parser, main_with_errors, parse_experiment


def main() -> None:
    parser = experiment_parser(__doc__)
    add_checkpoint(parser)
    args, config = parse_experiment(parser)
    from pods_jax.training import Reporter, evaluate_checkpoint

    scores = evaluate_checkpoint(config, args.workdir, Reporter(), args.checkpoint)
    if args.json:
        print(json.dumps(scores))


if __name__ == "__main__":
    main_with_errors(main)
