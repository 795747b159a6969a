"""Cost and figures of a run with a CPU budget (`python -m benchmarks.duty --help`)."""
