"""The augmented views of a batch."""
