"""Speed of triglot beside peers, plain JAX and earlier versions; `python -m benchmarks` lists all.

All share one harness, `benchmarks.harness`: paired, interleaved rounds, medians of ratios with
bootstrap intervals, compilation apart, a table and a JSON file.
"""
