"""Several brokers in one process: a controller, a network between them that can be cut, and replicas that follow.

Each broker is a whole one, with its own data folder, listeners, timer and image of the metadata; only the way between
them is short. What one sends to another is a request as on the wire, answered by the same handlers.
"""
