"""The data plane of share groups (KIP-932); loaded with the first of its requests."""
