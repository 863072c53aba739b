"""What a step will need, known before any device is at hand: memory, arithmetic, communication, time."""
