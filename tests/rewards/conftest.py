"""Time limits are asserted where they are the point; elsewhere a busy machine is no failure."""

from hypothesis import settings

settings.register_profile("rewards", deadline=None)
settings.load_profile("rewards")
