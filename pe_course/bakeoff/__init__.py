"""The same small model with every position encoding, trained short and tested long (chapter 17).

`python -m pe_course.bakeoff` runs a grid of cells, each one a trained model measured at several
lengths, and keeps one tidy CSV.
"""
