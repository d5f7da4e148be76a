"""Videos, read as clips."""
