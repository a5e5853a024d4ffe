"""What scores replies of tasks with a known right answer."""
