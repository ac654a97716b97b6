"""How mean reward moves: laws, noise, fits, forecasts and their scores."""
