"""The clinic: a doctor for positions (chapter 16).

Give `clinic.doctor.diagnose` a function, tables, a bias, a configuration or a model, and it says
what the thing does with positions, what is wrong, and how sure that is. `python -m clinic` does
the same from a shell.
"""
