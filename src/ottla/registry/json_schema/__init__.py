"""JSON Schema: reading by draft, references, and the compatibility rules of Confluent's registry."""
