"""The verbs of the command line, a module each group; `lmk_viz.__main__` puts them together."""
