"""Published experiments, repeated: the simulator runs them, pages and pictures show the results."""
