"""The HTTP stack: one for the metrics page, the control surface, the console and the schema registry.

uvicorn speaks HTTP and Starlette routes it. Neither is imported before the first connection arrives, so a broker whose
HTTP port nobody uses starts as fast as one without it.
"""
