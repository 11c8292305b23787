"""The loads that run in the load generator. Each function prepares a load and returns the part to time."""
