"""A prompt clip from outside to one level mono wave."""
