"""A broker inside a program: options, stops and starts, a look inside, faults, and their control over HTTP.

`ottla.Broker` and `ottla serve --control` are here. See docs/embedding.md and docs/faults.md.
"""
