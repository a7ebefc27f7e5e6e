"""A question put to a model: what the graph does not hold, but the model expects.

config.py           how rows of several targets are found
predictor.py        Predictor: a model, asked with queries as the user wrote them
rows.py             Rows: entities, probabilities and evidence of rows, from the ranking to the output
probability.py      from scores to probabilities of links and rows
calibration.py      how the probability of being true is made of a model's share
decompose.py        queries that a model cannot read in one piece: parts, cycles, targets, constants from conditions
joint.py            rows of several targets: links, beam, product
conditional.py      a query asked again with some of its targets filled in
ranking.py          excluded rows, and rows by the product of marginals
evidence.py         the assignment that a row rests on: stored and missing links
row_share.py        the share that a model gives one row
fit_calibration.py  a calibration, fitted to validation queries
"""
