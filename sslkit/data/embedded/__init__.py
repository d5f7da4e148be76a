"""Real images that ship with the package, each with its licence beside it."""
