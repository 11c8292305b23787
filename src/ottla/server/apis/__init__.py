"""The handlers, one module a family. A module is imported when one of its requests first comes.

Each function says with `@handles` which request it answers, and everything else about that API.
"""
