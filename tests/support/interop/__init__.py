"""Shared code of the interop tests: client drivers, toolchains, and brokers."""
