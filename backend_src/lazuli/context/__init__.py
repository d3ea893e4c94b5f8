"""Late chunking: vectors of chunks that were read together with their document."""
