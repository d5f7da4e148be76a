"""Images: where they come from (`sources`) and the views that are made of them (`views`)."""
