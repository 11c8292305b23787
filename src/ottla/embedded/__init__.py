"""A broker inside a program: its options, starting and stopping it, inspecting it, faults, and control over HTTP.

`ottla.Broker` and `ottla serve --control` are here. See docs/embedding.md and docs/faults.md.
"""
