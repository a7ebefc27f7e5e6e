"""The same few facts in every format of RDF."""

from __future__ import annotations

from biqe.graph.read import ReadGraph


def named(graph: ReadGraph) -> set[tuple[str, str, str]]:
    entities, relations = graph.vocabulary.entities, graph.vocabulary.relations
    return {(entities[s], relations[r], entities[o]) for s, r, o in graph.splits.train.tolist()}


E = "http://example.org/"


EXPECTED = {(E + "Rhine", E + "flows_through", E + "Germany"), (E + "Köln", E + "located_on", E + "Rhine")}


NTRIPLES = f"""<{E}Rhine> <{E}flows_through> <{E}Germany> .
# a comment
<{E}K\\u00F6ln> <{E}located_on> <{E}Rhine> .
<{E}Rhine> <{E}length> "1233"^^<http://www.w3.org/2001/XMLSchema#integer> .
<{E}Rhine> <http://www.w3.org/2000/01/rdf-schema#label> "Rhein"@de .
<{E}Rhine> <http://www.w3.org/2000/01/rdf-schema#label> "the Rhine" .
<{E}Rhine> <http://www.w3.org/2000/01/rdf-schema#label> "Rhine\\n river"@en-GB .
<{E}Rhine> <http://www.w3.org/2000/01/rdf-schema#label> "Rhine again"@en .
<{E}Oder> <http://www.w3.org/2000/01/rdf-schema#label> "Oder" .
<{E}Germany> <http://www.w3.org/2000/01/rdf-schema#label> "Deutschland"@de .
"""


TURTLE = f"""@prefix : <{E}> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:Rhine :flows_through :Germany ; :length 1233 ;
  rdfs:label "Rhein"@de, "the Rhine", "Rhine river"@en-GB, "Rhine again"@en .
:Köln :located_on :Rhine .
:Oder rdfs:label "Oder" . :Germany rdfs:label "Deutschland"@de .
"""


RDFXML = f"""<?xml version="1.0" encoding="UTF-8"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="{E}"
  xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#">
 <rdf:Description rdf:about="{E}Rhine">
  <e:flows_through rdf:resource="{E}Germany"/>
  <e:length>1233</e:length>
  <rdfs:label xml:lang="de">Rhein</rdfs:label>
  <rdfs:label>the Rhine</rdfs:label>
  <rdfs:label xml:lang="en-GB">Rhine river</rdfs:label>
  <rdfs:label xml:lang="en">Rhine again</rdfs:label>
 </rdf:Description>
 <rdf:Description rdf:about="{E}Köln"><e:located_on rdf:resource="{E}Rhine"/></rdf:Description>
 <rdf:Description rdf:about="{E}Oder"><rdfs:label>Oder</rdfs:label></rdf:Description>
 <rdf:Description rdf:about="{E}Germany"><rdfs:label xml:lang="de">Deutschland</rdfs:label></rdf:Description>
</rdf:RDF>
"""


NQUADS = NTRIPLES.replace(" .\n", " <http://example.org/graph> .\n")
