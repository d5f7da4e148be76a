"""Building blocks of objectives: heads, teachers, queues, prototypes, masked transformers."""
