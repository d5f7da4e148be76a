"""What objectives are built from: heads, teachers, queues, prototypes, masked transformers."""
