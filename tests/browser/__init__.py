"""A package, so that one browser serves its tests and ends with them."""
