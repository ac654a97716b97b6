"""Reports: one summary of plain data, shown as a page, as text in the terminal and as JSON.

Importing it imports nothing; take `summary`, `text`, `html` and `figures` by name.
"""
