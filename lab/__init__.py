"""The laboratory of the course: models, tasks and trainings, and what measures them.

The methods themselves are in `pe_lib`, what pages are furnished with in `pages`.
"""
