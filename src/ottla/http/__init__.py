"""The HTTP stack of the metrics page, the control endpoint, the console and the schema registry.

uvicorn speaks HTTP and Starlette routes it. Neither is imported before the first connection arrives, so a broker whose
HTTP port nobody uses starts as fast as one without it.
"""
