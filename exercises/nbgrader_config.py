"""Settings for nbgrader's own commands, run in this folder or in a course folder that copies it."""

c = get_config()  # noqa: F821

c.CourseDirectory.course_id = "positional_encodings"
c.ClearSolutions.code_stub = {"python": "# your code here\nraise NotImplementedError"}
c.ClearSolutions.text_stub = "Your answer here."
# Submissions are other people's HTML: feedback pages must not run it.
c.HTMLExporter.sanitize_html = True
