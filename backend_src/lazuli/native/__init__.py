"""Models in C++ for a CPU, compiled for the machine on which they run."""
