"""Results: what a protocol returns, how it is kept, its intervals, tests between two, tables."""
