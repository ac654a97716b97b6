"""Reports: one summary of plain data, shown as a page, as text in the terminal and as JSON."""
