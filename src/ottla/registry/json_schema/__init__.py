"""JSON Schema: parsing by draft, references, and the compatibility rules of Confluent's registry."""
