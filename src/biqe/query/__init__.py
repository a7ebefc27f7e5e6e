"""Queries: from SPARQL text to names, ids, structure and tokens."""
