"""TLS, SASL, access control, quotas and the limits on connections. Nothing is imported unless it is used."""
