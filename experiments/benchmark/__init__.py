"""Measurements beside peers and beside the hardware's limits; the command line is `experiments/benchmark.py`."""
