"""What can be typed: a record for each command, with a field for each option.

Nothing here imports torch, so that help, completion and errors about wrong options come at once. The modules that do
the work are imported when their command runs.
"""
