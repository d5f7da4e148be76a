"""The run's context, the loop that trains, and its machine: processes, waits, memory, arrays that are kept."""
