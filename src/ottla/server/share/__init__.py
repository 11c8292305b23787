"""The data plane of share groups (KIP-932); loaded when the first of its requests comes."""
