"""What a run needs of its machine: processes, waits, memory, arrays that are kept."""
