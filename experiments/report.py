"""Report on a finished or running run, in one HTML file: `python experiments/report.py --help`."""

from pods_jax.commands import report

if __name__ == "__main__":
    report()
