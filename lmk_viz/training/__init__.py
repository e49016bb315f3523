"""Training: data, losses, the loop, the recipe of the bundled family."""
