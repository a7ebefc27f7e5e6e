"""How CQD solves a query: structures of queries, truths of links, messages on trees, beams elsewhere, gradients.

cqd.py uses these; nobody else should need to.
"""
