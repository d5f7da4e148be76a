"""Numbers: measures of features, order without ties, schedules."""
