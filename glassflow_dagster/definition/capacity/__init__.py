"""What a load needs, by measured coefficients: cores, executors, partitions, memory, and what gives out first."""
