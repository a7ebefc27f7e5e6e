"""What the graph itself answers."""
