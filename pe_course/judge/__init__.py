"""How an answer to an exercise is judged: in a notebook, in a page and by the grader."""
