"""The benchmarks of `paddock rec` and `paddock data`: python -m benchmarks.rec."""
