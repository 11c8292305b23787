"""The handlers, one module per family. A module is imported with its first request.

Each function declares with `@handles` which request it answers, and everything else about that API.
"""
