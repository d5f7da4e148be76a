"""The protocols of this room."""
