"""Streams groups (KIP-1071). Imported with the first such group."""
