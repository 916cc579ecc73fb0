"""What other processes are at: their threads, whether they can go on, and what they have started."""
