"""EdgeRAG as its thesis has it (chapter 4), the baseline: five configurations of one two-level index."""
