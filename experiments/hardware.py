"""Tables of what the papers' sizes need, compiled ahead of time for TPU slices that are not there, for the documents.

    python experiments/hardware.py attention    # docs/planning/attention.json, and its table on the terminal
    python experiments/hardware.py decoding     # docs/planning/decoding.json: bytes of a token, beside the least
    python experiments/hardware.py slices       # docs/planning/slices.json: the smallest slice of each config
    python experiments/hardware.py layouts      # docs/planning/layouts.json: what an update sends, by its layout

Results are written as they come, and what a file already has is not compiled again. It needs the extra `plan`.
"""

import argparse

from hardware import FOLDER, TABLES
from hardware.table import fill

from pods_jax.cli import main_with_errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--only", default="", help="rows of which this is a part, of the model or the config")
    args = parser.parse_args()
    table = TABLES[args.table]
    print(table.markdown(fill(table, FOLDER / f"{args.table}.json", args.only)))


if __name__ == "__main__":
    main_with_errors(main)
