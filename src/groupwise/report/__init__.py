"""Reports: one summary of plain data, shown as a page, as text in the terminal and as JSON.

Importing it imports nothing; take `text`, `html` and `live` by name. The summary is made in `groupwise.analysis.summary`.
"""
