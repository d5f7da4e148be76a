"""What is written to a terminal: lines, tables, figures, the escaping of foreign text."""
