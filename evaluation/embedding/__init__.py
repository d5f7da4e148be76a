"""Features of every image of a folder in one file, its nearest neighbours, its near-duplicates and a map of it.

embedding = evaluation.embed("runs/zoo/NAME", "path/to/images")
evaluation.embedding.write(embedding, "features.npz")
"""

from sslkit import lazy

__getattr__, __dir__, __all__ = lazy.attributes(
    __name__,
    {
        "Embedding": "evaluation.embedding.table:Embedding",
        "contact_sheet": "evaluation.embedding.near_duplicates:contact_sheet",
        "draw_map": "evaluation.embedding.drawing:draw_map",
        "duplicates": "evaluation.embedding.near_duplicates:duplicates",
        "embed": "evaluation.embedding.table:embed",
        "nearest": "evaluation.embedding.neighbours:nearest",
        "read": "evaluation.embedding.file:read",
        "write": "evaluation.embedding.file:write",
    },
)
