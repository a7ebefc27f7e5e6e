"""What one link is worth: ComplEx, stored links, truth values, and the search over the links of a query.

softmax       scores of all entities at once, and the cross-entropy over them
complex       ComplEx, the link predictor
rules         closed paths that make a link likely, with their record on the graph
kinds         how well an entity fits as subject or object of a relation
probability   the calibrated probability of a link, from ComplEx, rules and kinds
fit           fits it on facts that were held out from training
knowledge     what was learnt about links, and its file
stored        the links that a graph holds
truth         truth values of links: the interface ``Links`` that the search works on
structures    queries of one structure, grouped, and the order in which their variables are solved; targets of a batch
max_product   the best assignment for each entity in each place, where the variables form a tree
beam          the best joint assignments, whatever the variables form
guided        the same for one large query, with messages that look ahead
search        the search as models use it: alone, or beside what an encoder says
"""
