"""Numbers: measures of features, order without ties, schedules, maps of features."""
