"""Published experiments, done again: the simulator runs them, pages and pictures show them."""
