"""The programs of sslkit. In an installation this folder is the package `sslkit_recipes`, see installed.py."""
