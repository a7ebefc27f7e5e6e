"""A knowledge base as tools for language-model agents, over the Model Context Protocol.

tools.py    what each tool answers: plain dicts, bounded in size
server.py   the tools over standard input and output, with the official SDK (extra ``agents``)
"""
