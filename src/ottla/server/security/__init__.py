"""TLS, SASL, access control, quotas and the limits on connections. None of it is imported where nothing asks for it."""
