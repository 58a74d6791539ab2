"""Names of the counting tasks that ship with the library; the command line lists them.

Nothing heavy is imported here. `tasks.counting_tasks` has the tasks themselves.
"""

COUNTING_TASKS = ("count01", "majority", "twice", "two_comparisons", "most_frequent")
