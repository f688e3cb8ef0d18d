"""Settings for nbgrader's own commands, run in this folder or in a course folder that copies it."""

from html import escape

from nbgrader import preprocessors as steps

c = get_config()  # noqa: F821

c.CourseDirectory.course_id = "positional_encodings"
c.ClearSolutions.code_stub = {"python": "# your code here\nraise NotImplementedError"}
c.ClearSolutions.text_stub = "Your answer here."


class ClearSolutions(steps.ClearSolutions):
    """Leave no stub outside of a function: it would stop the cells below it."""

    def preprocess_cell(self, cell, resources, index):
        """Clear one cell."""
        cell, resources = super().preprocess_cell(cell, resources, index)
        cell.source = cell.source.removesuffix("\nraise NotImplementedError")
        return cell, resources


c.GenerateAssignment.preprocessors = [
    steps.LockCells,
    ClearSolutions,
    steps.ClearOutput,
    steps.CheckCellMetadata,
    steps.ComputeChecksums,
    steps.SaveCells,
    steps.ClearHiddenTests,
    steps.ClearMarkScheme,
    steps.ComputeChecksums,
    steps.CheckCellMetadata,
]
# Submissions are other people's HTML: feedback pages must not run it.
c.HTMLExporter.sanitize_html = True


def listing(source, **_):
    """Return code as HTML without colours, which take minutes for a hostile cell."""
    return f'<div class="highlight"><pre><span></span>{escape(source)}</pre></div>'


c.HTMLExporter.filters = {"highlight_code": listing}

# `nbgrader autograde` runs students' code with all your rights, and takes the printed word of a
# submission for its grade. No file's permissions can be these words, so that it stops at once.
c.Autograde.permissions = "no: it runs submissions without a sandbox; use `make grade` instead"
