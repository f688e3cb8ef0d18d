"""The laboratory of the course: what pages and experiments share.

Models, tasks and trainings; measurements; figures, claims and sentences for the pages. The methods
themselves are in `pe_lib`.
"""
