"""Files: written whole or not at all, with checksums, and read without surprises."""
