"""Action recognition: what `evaluation.protocols.action` is made of. PyAV is needed where films are read."""
