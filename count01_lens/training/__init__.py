"""Training many models at once: recipe, stack, trainer, runs on disk, evolution, sweeps."""
