"""All shortest paths of a graph: a dictionary, which can be asked again, or an iterator, which cannot."""

import warnings

import networkx as nx

warnings.simplefilter("ignore")
paths = nx.shortest_path(nx.path_graph(4))
print("dictionary:", int(isinstance(paths, dict)))
