"""How a model learns: the stream of queries, the loop, checkpoints, and the folder that a run leaves behind."""
