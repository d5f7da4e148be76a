"""Options: settings with types and ranges, members by name, code of one's own."""
