"""This machine's processor: its name for reports, its kind for the folder of compiled programs, and its cores."""

import os
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


def cores() -> list[int]:
    """The numbers of the cores that this process may use; all of the machine's where the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def can_pin() -> bool:
    """Whether the system lets a process be bound to some of the cores, which macOS does not."""
    return hasattr(os, "sched_setaffinity")


def _lines() -> list[str]:
    return _INFO.read_text().splitlines() if _INFO.is_file() else []
