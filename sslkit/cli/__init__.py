"""The command line of every program in recipes/, which the installed `sslkit` runs too."""
