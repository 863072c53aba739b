"""Plans of a training step made ahead of time: its memory, arithmetic, communication and least duration."""
