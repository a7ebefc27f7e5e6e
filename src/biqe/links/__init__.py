"""What one link is worth: ComplEx, stored links, truth values, and the search over the links of a query.

targets       targets of a batch of queries, and whether a query can be answered
softmax       scores of all entities at once, and the cross-entropy over them
complex       ComplEx, the link predictor
stored        the links that a graph holds
truth         truth values of links: the interface ``Links`` that the search works on
structures    queries of one structure, grouped, and the order in which their variables are solved
max_product   the best assignment for each entity in each place, where the variables form a tree
beam          the best joint assignments, whatever the variables form
search        the search as models use it: alone, or beside what an encoder says
"""
