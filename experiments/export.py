"""Export a run's newest checkpoint: python experiments/export.py --config ... --workdir runs/demo --out exported/demo

Writes a folder that transformers loads; for a LoRA run the weights are merged, and out/adapter is what PEFT loads.
"""

import json

from pods_jax.cli import add_checkpoint, experiment_parser, main_with_errors, parse_experiment


def main() -> None:
    parser = experiment_parser(__doc__)
    parser.add_argument("--out", required=True, help="the folder to write")
    add_checkpoint(parser)
    args, config = parse_experiment(parser)
    from pods_jax.training import Reporter, export_checkpoint

    export_checkpoint(config, args.workdir, args.out, Reporter(), args.checkpoint)
    if args.json:
        print(json.dumps({"out": args.out}))


if __name__ == "__main__":
    main_with_errors(main)
