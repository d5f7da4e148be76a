"""Images: their sources (`sources`) and their augmented views (`views`)."""
