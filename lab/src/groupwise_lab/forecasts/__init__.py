"""Forecasts scored on what came after, and the table that calibrates their bands."""
