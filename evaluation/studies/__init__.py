"""Studies: tables, figures and claims of papers, declared as data (recipes/studies) and run by one engine.

`run.py` runs one, job by job, and writes its numbers, table and picture; `declaration.py` reads them; `study.py` is the
contract of a kind of them, of which each file beside it has one or more.
"""
