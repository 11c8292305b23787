"""Streams groups (KIP-1071): loaded when the first one is met."""
