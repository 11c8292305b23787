"""Values as Confluent's serializers write them: finds the schema of a value and decodes it."""
