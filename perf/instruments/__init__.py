"""What is read off a machine: the time of a kernel, the memory of a process."""
