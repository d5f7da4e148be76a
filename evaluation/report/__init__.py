"""One offline HTML page of a zoo: entries, evaluation, rankings, costs, with the origin of every number.

evaluation.report.write_report("runs/zoo", "report.html", rankings="runs/ranking")
"""

from sslkit import lazy

__getattr__, __dir__, __all__ = lazy.attributes(
    __name__,
    {"Options": "evaluation.report.options:Options", "write_report": "evaluation.report.write:write_report"},
)
