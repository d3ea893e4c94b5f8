"""What makes a load: what it is, the processes and threads that send it, and what they send it with."""
