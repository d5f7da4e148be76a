"""Pictures that are not plain are decoded in a process of their own, below limits of memory, time and files."""
