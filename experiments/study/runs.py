"""The study's runs, as a sweep's: WORKDIR/VARIANT/seed=N."""

from pathlib import Path

from pods_jax.config.load import load_config
from pods_jax.config.schema import Config
from pods_jax.training.sweep import SweepRun
from study.definition import VARIANTS, Study


def runs_of(study: Study, part: str, workdir: Path, num_seeds: int | None = None) -> list[SweepRun]:
    """All runs of a part, or of its first seeds, seed by seed: cut short, it has as many seeds of each variant."""
    chosen = study.parts[part]
    return [_run(study, name, seed, workdir) for seed in chosen.seeds[:num_seeds] for name in chosen.variants]


def config_of(study: Study, name: str, *overrides: str) -> Config:
    """The config whose step is timed, of seed 0."""
    return load_config(VARIANTS[name].spec, (*VARIANTS[name].overrides, *study.overrides, *overrides))


def _run(study: Study, name: str, seed: int, workdir: Path) -> SweepRun:
    variant = VARIANTS[name]
    overrides = (*variant.overrides, *study.overrides, f"warm_start.seed={seed}")
    return SweepRun(variant.spec, overrides, seed, workdir / name / f"seed={seed}")
