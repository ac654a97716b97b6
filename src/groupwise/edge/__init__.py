"""How far a run is from instability: lags, thresholds, and what the settings of trainers mean."""
