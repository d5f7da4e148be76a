"""Evaluation of models by any protocols: runs, summaries of several models, pictures, command lines."""
