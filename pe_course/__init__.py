"""What chapters import beside `pe_lib`: models, tasks, trainings, and what measures them.

The comparison of chapter 17 is in `pe_course.bakeoff`, what a page shows in `pe_course.page`.
Imports run one way: `page` may import `bakeoff`, and both what stands here.
"""
