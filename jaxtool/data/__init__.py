"""Files that ship with the package.  Host code.

`worldfacts/` is the embedded data set of the quickstart: a corpus, questions and demonstrations.
"""
