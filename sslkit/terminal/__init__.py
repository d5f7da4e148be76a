"""Output for a terminal: lines, tables, the escaping of foreign text."""
