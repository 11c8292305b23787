"""Avro: reading, the text that Apache Avro's Java library prints, and which schema reads what another one wrote."""
