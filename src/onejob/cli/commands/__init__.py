"""The commands of `onejob`: each is a module or a folder with its arguments, its call and its text."""
