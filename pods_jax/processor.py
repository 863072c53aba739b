"""This machine's processor: its name for reports, and its kind for the folder of compiled programs."""

import platform
from pathlib import Path

_INFO = Path("/proc/cpuinfo")


def processor_name() -> str:
    """The model's name as the system tells it; may be empty."""
    names = [line.partition(":")[2].strip() for line in _lines() if line.startswith("model name")]
    return names[0] if names else platform.processor()


def processor_kind() -> list[str]:
    """Lines that tell apart processors for which different programs are compiled: models and their features."""
    kinds = {line for line in _lines() if line.startswith(("model name", "flags", "Features"))}
    return sorted(kinds) or [platform.processor()]


def _lines() -> list[str]:
    return _INFO.read_text().splitlines() if _INFO.is_file() else []
