"""A broker inside a program: options, a life of stops and starts, a look inside, faults, and their control over HTTP.

`ottla.Broker` is made here, and so is what `ottla serve --control` runs. See docs/embedding.md and docs/faults.md.
"""
