"""The REST API as plain functions: a parsed request in, status and body out. Any HTTP library can serve it."""
