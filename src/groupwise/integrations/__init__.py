"""Trainers that write a record as they go: TRL by a callback, verl by a module that it imports.

Imported by nobody else here, and importing no trainer by itself: what is attached is found on the
object that the user hands over.
"""
