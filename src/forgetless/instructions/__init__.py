"""Standing instructions: recognised in what users say, and held until they end (REA, instructional memory)."""
