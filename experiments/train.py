"""Train a policy: python experiments/train.py --config configs/demo.py --workdir runs/demo [--config.seed=1 ...]

Goes on from the workdir's last checkpoint if it holds one. --json ends with a one-line summary.
"""

import json

from pods_jax.cli import experiment_parser, main_with_errors, parse_experiment


def main() -> None:
    parser = experiment_parser(__doc__)
    args, config = parse_experiment(parser)
    from pods_jax.training import Reporter, train

    summary = train(config, args.workdir, Reporter())
    if args.json:
        print(json.dumps(summary))


if __name__ == "__main__":
    main_with_errors(main)
