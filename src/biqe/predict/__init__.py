"""A question put to a model: what the graph does not hold, but the model expects.

config.py        the options of asking
predictor.py     Predictor: a model, asked with queries as the user wrote them
rows.py          Rows: entities, probabilities and evidence of rows, from the ranking to the output
decompose.py     Asking: any pattern; what cannot be asked in one piece is asked in pieces
link_search.py   rows by the search over calibrated links: the way of hybrids, which biqe train makes
joint.py         rows of models without such links: beam, product, the model's own search
conditional.py   a query asked again with some of its targets filled in; the share of one row
evidence.py      the assignment that a row rests on: stored and missing links
"""
