"""What maintainers run: benchmarks, mutants, the trust page, oldest versions, recipes."""
