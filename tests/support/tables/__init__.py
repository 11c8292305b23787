"""Tables for the tests of pipelines: other engines that read them, a catalog, and writers that can be killed."""
