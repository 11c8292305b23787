"""Sans-I/O: bytes in, messages out, and back.

`schema` declares messages, `decoding` and `encoding` compile them, `messages` and `stored` define them by family, and
`frames` puts headers around them.
"""
