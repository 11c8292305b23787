"""What runs inside the load generator. Each function prepares a load and returns the part that is timed."""
