"""WorldFacts: facts about countries and chemical elements as a corpus, questions and demonstrations.

Host code.  README.md says where the facts come from; `make.py` writes the data files anew.
"""
