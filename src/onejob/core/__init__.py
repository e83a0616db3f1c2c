"""What is true: pure decisions over a few facts. No I/O, no time, no chance."""
