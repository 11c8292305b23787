"""Several brokers in one process: a controller, a network between them that can be cut, and followers.

Each broker is complete, with its own data folder, listeners, timer and image of the metadata. They send each other
the requests of the protocol, without sockets, and the same handlers answer them.
"""
