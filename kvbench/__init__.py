"""kvbench: acceptance tests for storage that serves the KV cache of LLM inference."""

__version__ = "0.1.0"
