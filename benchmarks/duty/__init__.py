"""What a CPU budget costs and shows (`python -m benchmarks.duty --help`)."""
