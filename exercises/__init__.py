"""Exercise sets: instructor sources, student releases, and a grader that trusts no submission."""
